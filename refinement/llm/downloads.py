"""Downloads a known local embedder, once. Each file must have its pinned SHA-256."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
from django.conf import settings

from config.errors import DomainError

SECONDS = 60.0  # without a byte
PIECE = 1_000_000  # bytes

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


class Known(NamedTuple):
    """A model on Hugging Face, at one revision. `files` maps a path to the SHA-256 of the file."""

    repository: str
    revision: str
    files: dict[str, str]


KNOWN = {
    "all-MiniLM-L6-v2": Known(
        "sentence-transformers/all-MiniLM-L6-v2",
        "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        {
            "onnx/model.onnx": "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    )
}


class NotDownloaded(DomainError):
    """A file could not be downloaded, or is not the expected one."""

    code = "not_downloaded"


def install(name: str, progress: Progress) -> Path:
    """Download the files of a known model that are missing or damaged. Return the model's folder. Raises
    NotDownloaded."""
    folder: Path = settings.EMBEDDERS_DIR / name
    for path, sha256 in KNOWN[name].files.items():
        if not (folder / path).exists() or _sha256(folder / path) != sha256:
            _download(KNOWN[name], path, folder / path, progress)
    return folder


def _download(known: Known, path: str, target: Path, progress: Progress) -> None:
    """Download one file. It gets its name only when it is complete and right."""
    url = f"{settings.EMBEDDERS_URL.rstrip('/')}/{known.repository}/resolve/{known.revision}/{path}"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=SECONDS) as response, part.open("wb") as file:
            response.raise_for_status()
            size = int(response.headers.get("Content-Length", 0)) // PIECE
            with progress(f"Downloading {path}", size or None) as advance:
                for piece in response.iter_bytes(PIECE):
                    file.write(piece)
                    advance(1)
        if _sha256(part) != known.files[path]:
            raise NotDownloaded(f"{url} is not the expected file: its SHA-256 differs. Nothing was installed.")
        part.replace(target)
    except httpx.HTTPError as problem:
        raise NotDownloaded(
            f"{url} could not be downloaded: {problem}. Set EMBEDDERS_URL to a mirror with the same paths, or put the "
            f"file into {target.parent}."
        ) from None
    finally:
        part.unlink(missing_ok=True)
        with suppress(OSError):  # a folder is not empty
            for folder in target.parents[: len(Path(path).parts)]:
                folder.rmdir()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
