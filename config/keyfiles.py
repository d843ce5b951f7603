"""Key files. Each line is one secret in base64. The newest secret is first. The file mode is 0600. Only `create_keys`
creates these files."""

import base64
import os
import secrets
from pathlib import Path

# The names of the files, in the order in which `create_keys` creates them.
NAMES = ("django", "silo", "audit", "pepper", "heads")
KEY_BYTES = 32
DJANGO_KEY_BYTES = 48  # Django asks for 50 characters or more


def read_key_file(folder: Path, name: str) -> str:
    """The file's keys, separated by commas. Returns "" if the file does not exist."""
    try:
        return ",".join((folder / name).read_text("ascii", "replace").split())
    except FileNotFoundError:
        return ""


def how_to_open(folder: Path, name: str) -> str:
    """What to do if the service cannot read the key file."""
    return f"check KEYS_DIR; as the owner of the files, run 'chmod u=rwX,go= {folder} {folder / name}'"


def exposed(folder: Path) -> list[Path]:
    """The key files that other users can access, and the folder if other users can write to it."""
    open_to_others = [path for path in (folder / name for name in NAMES) if _mode(path) & 0o077]
    return [folder, *open_to_others] if _mode(folder) & 0o022 else open_to_others


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:  # missing or not accessible; reading the file reports this
        return 0


def new_key(size: int = KEY_BYTES) -> str:
    return base64.b64encode(secrets.token_bytes(size)).decode("ascii")


def create_key_file(folder: Path, name: str) -> bool:
    """Create the file with a new key. Return False if the file already exists, because an existing key is never
    replaced."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.{secrets.token_hex(4)}"
    size = DJANGO_KEY_BYTES if name == "django" else KEY_BYTES
    write_new(draft, new_key(size) + "\n")
    try:
        os.link(draft, folder / name)  # atomic, and fails if the name exists
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def prepend_key(folder: Path, name: str) -> None:
    """Add a new key in front of the existing ones, atomically."""
    draft = folder / f".{name}.new"
    draft.unlink(missing_ok=True)  # left by a crash
    write_new(draft, "\n".join([new_key(), *read_key_file(folder, name).split(",")]) + "\n")
    draft.replace(folder / name)


def write_new(path: Path, text: str) -> None:
    """Create a private file, and write it to the disk. Raises FileExistsError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
