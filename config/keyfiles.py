"""Key files: one secret per line, base64, newest first, mode 0600. Read here and made by `create_keys` alone."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path

# What each file holds, in the order `create_keys` makes them.
NAMES = ("django", "silo", "audit", "pepper", "heads")
KEY_BYTES = 32
DJANGO_KEY_BYTES = 48  # Django asks for 50 characters or more


def read_key_file(folder: Path, name: str) -> str:
    """The file's keys as one comma-separated line; empty when there is no such file."""
    try:
        return ",".join((folder / name).read_text("ascii", "replace").split())
    except FileNotFoundError:
        return ""


def exposed(folder: Path) -> list[Path]:
    """The key files that others than their owner can reach, and the folder if others can write in it."""
    open_to_others = [path for path in (folder / name for name in NAMES) if _mode(path) & 0o077]
    return [folder, *open_to_others] if _mode(folder) & 0o022 else open_to_others


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:  # not there, or not ours to see: told where it is read
        return 0


def new_key(size: int = KEY_BYTES) -> str:
    return base64.b64encode(secrets.token_bytes(size)).decode("ascii")


def create_key_file(folder: Path, name: str) -> bool:
    """Make the file with one new key. False when it exists: an existing key is never replaced."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.{secrets.token_hex(4)}"
    size = DJANGO_KEY_BYTES if name == "django" else KEY_BYTES
    _write_out(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), new_key(size) + "\n")
    try:
        os.link(draft, folder / name)  # whole, and only where there is none: a crash leaves no empty key behind
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def prepend_key(folder: Path, name: str) -> None:
    """Add a new key before the present ones, whole or not at all."""
    draft = folder / f".{name}.new"
    draft.unlink(missing_ok=True)  # left by a crash: it never counted
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    _write_out(handle, "\n".join([new_key(), *read_key_file(folder, name).split(",")]) + "\n")
    draft.replace(folder / name)


def _write_out(handle: int, text: str) -> None:
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
