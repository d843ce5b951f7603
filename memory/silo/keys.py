"""Create, wrap and unwrap data keys. Each agent has one data key. A data key is stored wrapped. This means that it is
encrypted with a key-encryption key from the keyring.

The format of a wrapped key: version byte | id of the key-encryption key (8 bytes, ASCII) | nonce, ciphertext and tag.
"""

import os
import secrets
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.db.models import BinaryField, F, Func

from config.keyring import Key, keyring, silo_key
from memory.errors import Erased, SealBroken, SiloKeyMissing
from memory.models import Agent

VERSION = b"\x01"
NONCE_BYTES = 12
ID_END = 9  # version byte and key id


def new_wrapped_key(agent_id: int) -> bytes:
    """Create a data key for an agent. Return the data key wrapped with the newest key-encryption key."""
    return _wrap(keyring().silo[0], agent_id, secrets.token_bytes(32))


def rewrap(agent_id: int, wrapped: bytes) -> bytes:
    """Wrap the data key with the newest key-encryption key, and return the wrapped key. If `wrapped` already uses the
    newest key, return `wrapped` unchanged."""
    newest = keyring().silo[0]
    if wrapping_key_id(wrapped) == newest.id:
        return wrapped
    return _wrap(newest, agent_id, unwrap(agent_id, wrapped))


def wrapping_key_id(wrapped: bytes) -> str:
    return bytes(wrapped[1:ID_END]).decode("ascii", "replace")


def wrapped_by(key_id: str) -> int:
    """Count the data keys that are wrapped by this key-encryption key."""
    begins = Func(F("wrapped_key"), 1, ID_END, function="SUBSTR", output_field=BinaryField())
    return Agent.objects.annotate(begins=begins).filter(begins=VERSION + key_id.encode("ascii")).count()


def unwrap(agent_id: int, wrapped: bytes) -> bytes:
    """Return the agent's data key.

    Raises SiloKeyMissing if the key-encryption key is not in the keyring. Raises SealBroken if `wrapped` was altered or
    belongs to another agent. Raises Erased if `wrapped` is empty.
    """
    if not wrapped:
        raise Erased(f"The silo of agent {agent_id} was erased. It can no longer be read or changed.")
    key_id = wrapping_key_id(wrapped)
    key = silo_key(key_id)
    if key is None:
        raise SiloKeyMissing(
            f"The silo of agent {agent_id} is wrapped by key {key_id}, which is not in the keyring. "
            "Restore that key from its backup to SILO_KEYS (then restart the service), or to the silo file in KEYS_DIR."
        )
    try:
        nonce, sealed = wrapped[ID_END : ID_END + NONCE_BYTES], wrapped[ID_END + NONCE_BYTES :]
        return _wrapper(key).decrypt(nonce, sealed, _associated(key_id, agent_id))
    except (InvalidTag, ValueError):
        raise SealBroken(f"The data key of agent {agent_id} cannot be decrypted: it was changed.") from None


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a 256-bit subkey for one purpose from `secret` (HKDF-SHA256)."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"palimpsest/" + purpose).derive(secret)


def _wrap(key: Key, agent_id: int, data_key: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    body = _wrapper(key).encrypt(nonce, data_key, _associated(key.id, agent_id))
    return VERSION + key.id.encode("ascii") + nonce + body


def _wrapper(key: Key) -> AESGCM:
    return AESGCM(derive(key.secret, b"wrap"))


def _associated(key_id: str, agent_id: int) -> bytes:
    return VERSION + key_id.encode("ascii") + struct.pack(">Q", agent_id) + b"data key"
