"""Sealing and opening bytes: AES-256-GCM with associated data, and keyed digests. Known to `memory.silo` alone.

A sealed memory is one byte string holding two seals, its content's and its tags', so that tags can be united
without opening what a memory says:

    version (1 byte) | length of the content's seal (4 bytes) | content's seal | tags' seal (empty for no tags)

A seal is a random 12-byte nonce, ciphertext and 16-byte tag. Associated data binds it to agent, memory and field.
"""

from __future__ import annotations

import hmac
import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VERSION = b"\x01"
NONCE_BYTES = 12


class Broken(Exception):
    """A seal did not open. Carries nothing; `memory.silo` says which record it was."""


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A 256-bit subkey for one purpose, by HKDF-SHA256."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"palimpsest/" + purpose).derive(secret)


def place(agent_id: int, number: int, field: bytes) -> bytes:
    """The associated data that says where a seal belongs: it opens nowhere else."""
    return VERSION + struct.pack(">QQ", agent_id, number) + field


class Cipher:
    """One agent's subkeys: seals, opens and digests what belongs to its silo."""

    __slots__ = ("_aead", "_digest_key")

    def __init__(self, data_key: bytes) -> None:
        self._aead = AESGCM(derive(data_key, b"content"))
        self._digest_key = derive(data_key, b"digest")

    def seal(self, associated: bytes, plain: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, plain, associated)

    def open(self, associated: bytes, sealed: bytes) -> bytes:
        return unseal(self._aead, sealed, associated)

    def digest(self, plain: bytes) -> bytes:
        return hmac.digest(self._digest_key, plain, "sha256")


def unseal(aead: AESGCM, sealed: bytes, associated: bytes) -> bytes:
    """Open nonce + ciphertext. Raises Broken for anything that is not exactly what was sealed there."""
    try:
        return aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except (InvalidTag, ValueError):
        raise Broken from None


def pack(content: bytes, tags: bytes) -> bytes:
    return VERSION + struct.pack(">I", len(content)) + content + tags


def unpack(sealed: bytes) -> tuple[bytes, bytes]:
    """(content's seal, tags' seal). Raises Broken when it is not of this form."""
    if sealed[:1] != VERSION or len(sealed) < 5:
        raise Broken
    end = 5 + struct.unpack(">I", sealed[1:5])[0]
    if end > len(sealed):
        raise Broken
    return sealed[5:end], sealed[end:]
