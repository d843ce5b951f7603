"""The keyring: all keys of the service, by purpose. Each process loads the keys once. The keys are never in the
database."""

import base64
import binascii
import hashlib
import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from django.conf import settings

from config import PROGRAM
from config.errors import ConfigurationError
from config.keyfiles import KEY_BYTES, how_to_open, read_key_file


class KeysMissing(ConfigurationError):
    """A key is missing, or is not 32 bytes of base64."""

    code = "keys_missing"


@dataclass(frozen=True, slots=True)
class Key:
    """32 secret bytes, and a short public id, which is stored with the data."""

    id: str
    secret: bytes = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys cannot be pickled or copied")


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by purpose, newest first. The first key seals and signs. All keys open seals and check signatures."""

    silo: tuple[Key, ...]
    audit: tuple[Key, ...]
    pepper: tuple[Key, ...]
    heads: tuple[Key, ...]


def keyring(*, again: bool = False) -> Keyring:
    """The keys from the settings or the key files. With `again`, the files are read again. If that fails, the old
    keys are kept. Raises KeysMissing, with a message that says how to create keys."""
    named = [str(settings.KEYS_DIR), *(getattr(settings, variable) for variable in _VARIABLES.values())]
    if again:
        with suppress(KeysMissing):
            _load.__wrapped__(*named)
            _load.cache_clear()
    return _load(*named)


def macs(text: str) -> list[bytes]:
    """The MACs of a text with each pepper of the keyring, newest first. The newest pepper signs. With older peppers, a
    key, link or row stays valid after a newer pepper is added."""
    return [hmac.digest(pepper.secret, text.encode(), "sha256") for pepper in keyring().pepper]


def is_proven(expected: object, text: str) -> bool:
    """Whether `expected` is a MAC of the text. The comparison takes constant time. A value of a wrong type is no
    MAC."""
    stored = bytes(expected) if isinstance(expected, bytes | memoryview) else bytes(32)
    matches = [hmac.compare_digest(stored, mac) for mac in macs(text)]
    return any(matches)


def silo_key(key_id: str) -> Key | None:
    """The key-encryption key with this id, or None. For an unknown id the key files are read again, because a key may
    have been added. Raises KeysMissing."""
    for again in (False, True):
        for key in keyring(again=again).silo:
            if key.id == key_id:
                return key
    return None


_VARIABLES = {"silo": "SILO_KEYS", "audit": "AUDIT_KEY", "pepper": "PEPPER_KEY", "heads": "HEADS_KEY"}


@lru_cache(maxsize=8)
def _load(folder: str, *named: str) -> Keyring:
    return Keyring(*(_keys(folder, name, keys) for name, keys in zip(_VARIABLES, named, strict=True)))


def _keys(folder: str, name: str, variable: str) -> tuple[Key, ...]:
    try:
        material = variable or read_key_file(Path(folder), name)
    except OSError as failure:
        problem = f"The {name} key cannot be read from {folder} ({failure.strerror})"
        raise KeysMissing(f"{problem}: {how_to_open(Path(folder), name)}.") from None
    if not material:
        raise KeysMissing(
            f"The {name} key is missing. If the service runs with another VAR_DIR or KEYS_DIR, set it here, too. If "
            f"this database was used before, copy its keys from the backup into {folder}. Otherwise, create keys with "
            f"'{PROGRAM} create_keys'."
        )
    parts = [part.strip() for part in material.split(",")]
    return tuple(_key(name, part) for part in parts if part) or (_key(name, ""),)


def _key(name: str, encoded: str) -> Key:
    try:
        secret = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        problem = f"is not {KEY_BYTES} bytes of base64: check {_VARIABLES[name]}, or the file '{name}' in KEYS_DIR"
        raise KeysMissing(f"The {name} key {problem}.") from None
    return Key(hashlib.sha256(b"palimpsest key id" + secret).hexdigest()[:8], secret)
