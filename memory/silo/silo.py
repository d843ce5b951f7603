"""The silo encrypts and decrypts an agent's memories. No other module encrypts or decrypts memories.

A sealed memory is one byte string with two seals: one of the content and one of the label. So tags can be merged
without decrypting the content. The label is a JSON list of tags. For a memory of a store, it is a JSON object. The
format of a sealed memory is:

    version (1 byte) | length of the content's seal (4 bytes) | content's seal | label's seal (empty for no tags)

A seal is encrypted with AES-256-GCM. A seal consists of a random 12-byte nonce, the ciphertext and a 16-byte
authentication tag. Associated data binds a seal to its agent, memory and field.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from memory.access import authority
from memory.errors import SealBroken
from memory.models import Agent, Memory
from memory.silo.keys import NONCE_BYTES, VERSION, derive, unwrap

CONTENT, TAGS = "content", "tags"
PLACE_BYTES = 16  # of the digest of one folder or file
CACHED = 1024  # the most silos that this process keeps in its cache
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """The decrypted content, tags and path of a memory. The `repr` shows none of them, so that logs do not contain
    them."""

    content: str
    tags: tuple[str, ...]
    path: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Label:
    """What a sealed memory has besides its content. `path`, `sha256` and `size` are set for a memory of a store. The
    last two are the SHA-256 of its content in hex, and the size of its content in bytes."""

    tags: tuple[str, ...]
    path: str = ""
    sha256: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Read:
    """A memory with its decrypted content.

    The other fields are of a search. `score` is the memory's score, and `successor` the memory that superseded it. If
    `is_match` is false, the memory is a result only because it is a successor. `is_excerpt` is true if `opened` has
    only a part of the content.
    """

    memory: Memory
    opened: Opened
    score: float = 0.0
    successor: int | None = None
    is_match: bool = True
    is_excerpt: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the memory in the format of the API and of JSON output."""
        memory = self.memory
        return {
            "id": memory.number,
            "kind": memory.kind,
            "layer": memory.layer,
            "category": memory.category,
            "scope": memory.scope,
            "project": memory.project,
            "tags": list(self.opened.tags),
            "origin": memory.origin,
            "origin_latest": memory.origin_latest,
            "created_at": memory.created_at,
            "tokens": memory.tokens,
            "constitutional": memory.constitutional,
            "content": self.opened.content,
            "path": self.opened.path if memory.store else None,
            "discarded_at": memory.discarded_at,
            "superseded_by": memory.superseded_by,
            "version": memory.version,
        }


class Silo:
    """Encrypts and decrypts the memories of one agent. Get an instance from `for_agent`."""

    __slots__ = ("_aead", "_agent_id", "_digest_key")

    def __init__(self, agent_id: int, data_key: bytes) -> None:
        self._agent_id = agent_id
        self._aead = AESGCM(derive(data_key, b"content"))
        self._digest_key = derive(data_key, b"digest")

    @classmethod
    def for_agent(cls, agent: Agent) -> Silo:
        """Return the silo of an agent, from the cache if possible. Use a silo only for work on behalf of its agent.

        The cache key contains the wrapped key. So after a key is rotated or erased, no process uses the old silo from
        its cache. Raises SiloKeyMissing, SealBroken and Erased, as `unwrap` does.
        """
        authority.require(agent)
        place = (agent.pk, bytes(agent.wrapped_key))
        with _lock:
            if place in _silos:
                _silos.move_to_end(place)
                return _silos[place]
        silo = cls(agent.pk, unwrap(*place))
        with _lock:
            _silos[place] = silo
            while len(_silos) > CACHED:
                _silos.popitem(last=False)
        return silo

    def digest(self, content: str, use: str = "memory") -> bytes:
        """Return a keyed digest of a memory's content, or of another text with another `use`. With these digests,
        memories with equal content can be found without decryption."""
        return hmac.digest(self._digest_key, f"{use}\0{content}".encode(), "sha256")

    def digest_of_file(self, data: bytes) -> bytes:
        """Return a keyed digest of a file in the vault. Without the key, nobody can use the digest to check a guess
        about the file's content."""
        return hmac.digest(self._digest_key, b"file\0" + data, "sha256")

    def place(self, store: int, path: str) -> bytes:
        """Return a keyed digest of each folder of a path and of the path itself, one after another. So the place of a
        folder begins the places of all memories in it."""
        parts = path.rstrip("/").split("/")
        paths = ("/".join(parts[:end]) for end in range(2, len(parts) + 1))
        return b"".join(self.digest(f"{store}{each}", "path")[:PLACE_BYTES] for each in paths)

    def seal(self, number: int, content: str, tags: Sequence[str], path: str = "") -> bytes:
        """Seal a memory. `path` is its path in its store."""
        data = content.encode()
        label: Any = list(tags)
        if path:
            label = {"tags": label, "path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return self._with_label(number, self.seal_data(CONTENT, number, data), label)

    def retag(self, number: int, sealed: bytes, tags: Sequence[str]) -> bytes:
        """Return the sealed memory with other tags. The content is not decrypted."""
        return self._relabeled(number, sealed, tags=list(tags))

    def rename(self, number: int, sealed: bytes, path: str) -> bytes:
        """Return a sealed memory of a store with another path. The content is not decrypted."""
        return self._relabeled(number, sealed, path=path)

    def open(self, memory: Memory) -> Opened:
        return self.open_sealed(memory.number, bytes(memory.sealed))

    def open_sealed(self, number: int, sealed: bytes) -> Opened:
        """Decrypt a sealed memory. Raises SealBroken with the number of the memory."""
        content, sealed_label = self._parts(number, sealed)
        label = self._open_label(number, sealed_label)
        return Opened(self.open_data(CONTENT, number, content).decode(), label.tags, label.path)

    def open_tags(self, memory: Memory) -> tuple[str, ...]:
        return self._open_label(memory.number, self._parts(memory.number, bytes(memory.sealed))[1]).tags

    def open_label(self, number: int, sealed: bytes) -> Label:
        return self._open_label(number, self._parts(number, sealed)[1])

    def seal_text(self, field: str, number: int, text: str) -> bytes:
        """Seal another text, such as the note of an entry or the summaries of a session. `number` is the number of the
        entry or session."""
        return self.seal_data(field, number, text.encode())

    def open_text(self, field: str, number: int, sealed: bytes) -> str:
        return self.open_data(field, number, sealed).decode()

    def seal_data(self, field: str, number: int, data: bytes) -> bytes:
        """Seal bytes, such as the content of a file."""
        nonce = os.urandom(NONCE_BYTES)
        place = (
            VERSION + struct.pack(">QQ", self._agent_id, number) + field.encode()
        )  # so that the sealed bytes cannot be decrypted in another place
        return nonce + self._aead.encrypt(nonce, data, place)

    def open_data(self, field: str, number: int, sealed: bytes) -> bytes:
        """Decrypt sealed bytes. Raises SealBroken if the bytes were altered, or if they were sealed for another agent,
        number or field."""
        place = VERSION + struct.pack(">QQ", self._agent_id, number) + field.encode()
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise self._broken(number) from None

    def _with_label(self, number: int, content: bytes, label: Any) -> bytes:
        """Seal the label. Return a sealed memory that consists of the seal of the content (`content`) and the seal of
        the label."""
        sealed_label = self.seal_data(TAGS, number, _encode(label).encode()) if label else b""
        return VERSION + struct.pack(">I", len(content)) + content + sealed_label

    def _relabeled(self, number: int, sealed: bytes, **values: Any) -> bytes:
        content, sealed_label = self._parts(number, sealed)
        label = self._open_label(number, sealed_label)
        changed = {name: getattr(label, name) for name in ("tags", "path", "sha256", "size")} | values
        return self._with_label(number, content, changed if changed["path"] else changed["tags"])

    def _open_label(self, number: int, sealed: bytes) -> Label:
        label = json.loads(self.open_data(TAGS, number, sealed)) if sealed else []
        if isinstance(label, dict):
            return Label(**label | {"tags": tuple(label["tags"])})
        return Label(tuple(label))

    def _parts(self, number: int, sealed: bytes) -> tuple[bytes, bytes]:
        """Return the seal of the content and the seal of the tags. Raises SealBroken if the format is wrong."""
        if sealed[:1] != VERSION or len(sealed) < 5:
            raise self._broken(number)
        end = 5 + struct.unpack(">I", sealed[1:5])[0]
        if end > len(sealed):
            raise self._broken(number)
        return sealed[5:end], sealed[end:]

    def _broken(self, number: int) -> SealBroken:
        return SealBroken(
            f"Record {number} of agent {self._agent_id} cannot be decrypted: it was changed, or the key is wrong."
        )


_silos: OrderedDict[tuple[int, bytes], Silo] = OrderedDict()
_lock = Lock()


def forget_unwrapped(agent_id: int | None = None) -> None:
    """Remove all silos, or only the silo of one agent, from the cache of this process."""
    with _lock:
        for place in [place for place in _silos if agent_id in (None, place[0])]:
            del _silos[place]
