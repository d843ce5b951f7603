"""The keyring: all keys of the service, by purpose. Each process loads the keys once. The keys are never in the
database."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from django.conf import settings

from config.errors import ConfigurationError
from config.keyfiles import KEY_BYTES, read_key_file


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


def keyring() -> Keyring:
    """The keys from the settings or the key files. Raises KeysMissing, with a message that says how to create keys."""
    return _load(*_named())


def silo_key(key_id: str) -> Key | None:
    """The key-encryption key with this id, or None. For an unknown id the key files are read again, because a key may
    have been added. Raises KeysMissing."""
    found = _silo_key(keyring(), key_id)
    return found or _silo_key(read_again(), key_id)


def _silo_key(ring: Keyring, key_id: str) -> Key | None:
    return next((key for key in ring.silo if key.id == key_id), None)


def read_again() -> Keyring:
    """Load the keys again. If that fails, keep the old keys."""
    try:
        fresh = _load.__wrapped__(*_named())
    except KeysMissing:
        return keyring()
    _load.cache_clear()
    return fresh


_VARIABLES = {"silo": "SILO_KEYS", "audit": "AUDIT_KEY", "pepper": "PEPPER_KEY", "heads": "HEADS_KEY"}


def _named() -> list[str]:
    return [str(settings.KEYS_DIR), *(getattr(settings, variable) for variable in _VARIABLES.values())]


@lru_cache(maxsize=8)
def _load(folder: str, *named: str) -> Keyring:
    return Keyring(*(_keys(folder, name, keys) for name, keys in zip(_VARIABLES, named, strict=True)))


def _keys(folder: str, name: str, variable: str) -> tuple[Key, ...]:
    try:
        material = variable or read_key_file(Path(folder), name)
    except OSError as failure:
        raise KeysMissing(f"The {name} key cannot be read from {folder} ({failure.strerror}).") from None
    if not material:
        raise KeysMissing(
            f"The {name} key is missing. If this database was used before, copy its keys from the backup into "
            f"{folder}. Otherwise, create keys with 'manage.py create_keys'."
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
