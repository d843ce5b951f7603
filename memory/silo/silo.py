"""The silo: the one door to what an agent's memories say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memory.errors import SealBroken
from memory.models import Agent, Memory
from memory.silo.cipher import Broken, Cipher, pack, place, unpack
from memory.silo.keys import cipher_for

CONTENT, TAGS = "content", "tags"
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """What one memory says. Its `repr` does not: what is printed by mistake ends up in logs."""

    content: str
    tags: tuple[str, ...]


class Silo:
    """A capability: whoever holds it can read and seal for one agent. Had only from `for_agent`."""

    __slots__ = ("_agent_id", "_cipher")

    def __init__(self, agent_id: int, cipher: Cipher) -> None:
        self._agent_id = agent_id
        self._cipher = cipher

    @classmethod
    def for_agent(cls, agent: Agent) -> Silo:
        """The silo of an agent, for work done on that agent's own behalf.

        Raises SiloKeyMissing or SealBroken when its key cannot be had.
        """
        return cls(agent.pk, cipher_for(agent.pk, bytes(agent.wrapped_key)))

    def digest(self, content: str) -> bytes:
        """The keyed digest by which equal contents are found without reading them."""
        return self._cipher.digest(content.encode())

    def digest_of_file(self, data: bytes) -> bytes:
        """The keyed digest of a file in its vault: no guess at what it says is tried on it."""
        return self._cipher.digest(b"file\0" + data)

    def seal(self, number: int, content: str, tags: Sequence[str]) -> bytes:
        return pack(self.seal_data(CONTENT, number, content.encode()), self._seal_tags(number, tags))

    def retag(self, number: int, sealed: bytes, tags: Sequence[str]) -> bytes:
        """The same memory with other tags; its content is not opened."""
        return pack(self._parts(number, sealed)[0], self._seal_tags(number, tags))

    def open(self, memory: Memory) -> Opened:
        return self.open_sealed(memory.number, bytes(memory.sealed))

    def open_sealed(self, number: int, sealed: bytes) -> Opened:
        """Raises SealBroken, naming the memory."""
        content, tags = self._parts(number, sealed)
        return Opened(self.open_data(CONTENT, number, content).decode(), self._open_tags(number, tags))

    def open_tags(self, memory: Memory) -> tuple[str, ...]:
        return self._open_tags(memory.number, self._parts(memory.number, bytes(memory.sealed))[1])

    def seal_text(self, field: str, number: int, text: str) -> bytes:
        """Content that is no memory: what a merge dropped (by its entry's number), a session's words (by its own)."""
        return self.seal_data(field, number, text.encode())

    def open_text(self, field: str, number: int, sealed: bytes) -> str:
        return self.open_data(field, number, sealed).decode()

    def seal_data(self, field: str, number: int, data: bytes) -> bytes:
        """The same of bytes, such as a file's."""
        return self._cipher.seal(place(self._agent_id, number, field.encode()), data)

    def open_data(self, field: str, number: int, sealed: bytes) -> bytes:
        """Raises SealBroken."""
        try:
            return self._cipher.open(place(self._agent_id, number, field.encode()), sealed)
        except Broken:
            raise self._broken(number) from None

    def _seal_tags(self, number: int, tags: Sequence[str]) -> bytes:
        return self.seal_data(TAGS, number, _encode(list(tags)).encode()) if tags else b""

    def _open_tags(self, number: int, sealed: bytes) -> tuple[str, ...]:
        return tuple(json.loads(self.open_data(TAGS, number, sealed))) if sealed else ()

    def _parts(self, number: int, sealed: bytes) -> tuple[bytes, bytes]:
        try:
            return unpack(sealed)
        except Broken:
            raise self._broken(number) from None

    def _broken(self, number: int) -> SealBroken:
        return SealBroken(f"Record {number} of agent {self._agent_id} does not open: wrong key, or it was altered.")
