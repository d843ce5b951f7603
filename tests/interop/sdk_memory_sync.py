"""This takes the place of the fake in the tests of the SDK's folder sync. It has the names that the tests import, but
the files are in a memory store of the service. It passes the sync's requests on, and notes them.

It runs in the environment of the SDK, next to these tests.
"""

import hashlib
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from types import SimpleNamespace
from typing import Any

import httpx2
from anthropic import Anthropic, APIStatusError, AsyncAnthropic

ADDRESS = os.environ["TEST_API_BASE_URL"]
NOTES, BROKEN = "memstore_notes", "memstore_broken"  # ids that the tests expect


def _sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _status_error(code: int) -> APIStatusError:
    request = httpx2.Request("POST", ADDRESS)
    return APIStatusError("", response=httpx2.Response(code, request=request), body=None)


def created(path: str, content: str) -> tuple[Any, ...]:
    return ("create", path, content)


def updated(path: str, content: str, *, was: str) -> tuple[Any, ...]:
    return ("update", path, content, _sha(was))


def deleted(path: str, *, was: str) -> tuple[Any, ...]:
    return ("delete", path, _sha(was))


class Files(MutableMapping[str, str]):
    """The files in a memory store of the service, as they are now."""

    def __init__(self, key: str, store: str) -> None:
        self._store = store
        self.memories = Anthropic(base_url=ADDRESS, api_key=key).beta.memory_stores.memories

    def _all(self) -> dict[str, Any]:
        found = self.memories.list(self._store, view="full", limit=20)
        return {memory.path.removeprefix("/"): memory for memory in found}

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, path: str) -> str:
        return str(self._all()[path].content)

    def __setitem__(self, path: str, content: str) -> None:
        known = self._all().get(path)
        if known is None:
            self.memories.create(self._store, path=f"/{path}", content=content)
        else:
            self.memories.update(known.id, memory_store_id=self._store, content=content)

    def __delitem__(self, path: str) -> None:
        self.memories.delete(self._all()[path].id, memory_store_id=self._store)


class MemoryServer:
    """A new agent of the service with one memory store. The hooks and the limit break requests, as the tests want.
    `false_paths` are paths that the service refuses: they are added to the lists, as if it had sent them."""

    def __init__(self, initial: Mapping[str, str]) -> None:
        with urllib.request.urlopen(f"{ADDRESS}/reset?test=sync", timeout=60) as response:
            made = json.load(response)
        self.key, self.store = made["key"], made["store"]
        self.files = Files(self.key, self.store)
        self.false_paths = {path: content for path, content in initial.items() if ".." in path}
        for path in initial.keys() - self.false_paths.keys():
            self.files[path] = initial[path]
        self.received: list[tuple[Any, ...]] = []
        self.max_content_bytes: int | None = None
        self.retrieves: list[str] = []
        self.content_fetches: list[str] = []
        self.fetch_hook: Callable[[str], None] | None = None
        self.upload_hook: Callable[[str], Awaitable[None]] | None = None

    def write(self, path: str, content: str) -> None:
        self.files[path] = content

    def delete(self, path: str) -> None:
        del self.files[path]


class _Resource:
    """The SDK's own resources, with notes of what they send. An upload blocks: a test that ends the sync expects that a
    request that was sent arrives."""

    def __init__(self, server: MemoryServer, *, noise: bool = False) -> None:
        self._server, self._noise = server, noise
        self.client = AsyncAnthropic(base_url=ADDRESS, api_key=server.key)
        self._memories = self.client.beta.memory_stores.memories
        self._paths: dict[str, str] = {}  # of the ids that were listed

    async def list(self, memory_store_id: str, **options: Any) -> AsyncIterator[Any]:
        for path, text in self._server.false_paths.items():
            yield SimpleNamespace(type="memory", id="", path=f"/{path}", content=text, content_sha256=_sha(text))
        if self._noise:
            yield SimpleNamespace(type="memory_prefix", path="/projects/")
        if memory_store_id == BROKEN:
            content = "partial" if options.get("view") == "full" else None
            yield SimpleNamespace(
                type="memory", id="", path="/half.md", content=content, content_sha256=_sha("partial")
            )
            raise RuntimeError("list exploded")
        async for memory in self._memories.list(self._server.store, **options):
            self._paths[memory.id] = memory.path.removeprefix("/")
            yield memory

    async def retrieve(self, memory_id: str, *, memory_store_id: str, **options: Any) -> Any:
        path = self._paths[memory_id]
        self._server.content_fetches.append(path)
        if self._server.fetch_hook is not None:
            self._server.fetch_hook(path)
        return await self._memories.retrieve(memory_id, memory_store_id=self._server.store, **options)

    async def _note(self, path: str, content: str, request: tuple[Any, ...]) -> None:
        if self._server.upload_hook is not None:
            await self._server.upload_hook(path)
        self._server.received.append(request)
        limit = self._server.max_content_bytes
        if limit is not None and len(content.encode()) > limit:
            raise _status_error(400)

    async def create(self, _: str, *, path: str, content: str) -> Any:
        bare = path.removeprefix("/")
        await self._note(bare, content, created(bare, content))
        return self._server.files.memories.create(self._server.store, path=path, content=content)

    async def update(self, memory_id: str, *, memory_store_id: str, content: str, precondition: Any) -> Any:
        path = self._paths[memory_id]
        await self._note(path, content, ("update", path, content, precondition["content_sha256"]))
        options = {"memory_store_id": self._server.store, "precondition": precondition}
        return self._server.files.memories.update(memory_id, content=content, **options)

    async def delete(self, memory_id: str, *, memory_store_id: str, **options: Any) -> Any:
        self._server.received.append(("delete", self._paths[memory_id], options.get("expected_content_sha256")))
        return await self._memories.delete(memory_id, memory_store_id=self._server.store, **options)


def fake_anthropic(
    initial: Mapping[str, str],
    *,
    access: str | None = None,
    broken_store: bool = False,
    broken_store_last: bool = False,
    no_stores: bool = False,
    mount_path: str | None = None,
    noise: bool = False,
) -> tuple[Any, MemoryServer]:
    """A client whose session is that of the service. What nobody can set in the service is set here: the place of the
    folder, the access and the id."""
    server = MemoryServer(initial)
    memories = _Resource(server, noise=noise)

    async def retrieve(session_id: str) -> Any:
        server.retrieves.append(session_id)
        session = await memories.client.beta.sessions.retrieve(session_id)
        for resource in session.resources:
            resource.mount_path, resource.access, resource.memory_store_id = mount_path, access, NOTES
        broken = SimpleNamespace(
            type="memory_store", memory_store_id=BROKEN, mount_path=None, name="broken", access=None
        )
        resources: list[Any] = [SimpleNamespace(type="file", file_id="file_1")] if noise else []
        resources += [broken] if broken_store else []
        resources += [] if no_stores else session.resources
        session.resources = [*resources, *([broken] if broken_store_last else [])]
        return session

    beta = SimpleNamespace(
        sessions=SimpleNamespace(retrieve=retrieve), memory_stores=SimpleNamespace(memories=memories)
    )
    return SimpleNamespace(beta=beta), server
