"""The memories in a store: `/v1/memory_stores/ID/memories`."""

import re
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, Text
from memory.api.stores import wire
from memory.errors import Invalid
from memory.models import Memory
from memory.search import stores as reading
from memory.search.stores import Child, Item
from memory.silo.silo import PLACE_BYTES
from memory.writing import stores

_PLACE = re.compile(rf"(?:[0-9a-f]{{{2 * PLACE_BYTES}}}){{1,20}}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class MemoryIn(Body):
    path = Text()
    content = Text(allow_blank=True)


class PreconditionIn(Body):
    type = Choice(["content_sha256"])
    content_sha256 = Text()


class ChangeIn(Body):
    path = Text(required=False, allow_null=True)
    content = Text(required=False, allow_blank=True, allow_null=True)
    precondition = PreconditionIn(required=False, allow_null=True)


class MemoriesQuery(wire.PageQuery, wire.ViewQuery):
    path_prefix = Text(required=False, allow_blank=True)
    depth = serializers.IntegerField(min_value=0, max_value=1, default=0)


class DeleteQuery(Body):
    expected_content_sha256 = Text(required=False)


class MemoryView(wire.StoresView):
    """A path inside a store."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.store = wire.number_of(kwargs["store"], "memstore_")

    def shown(self, memory: Memory, *, is_full: bool) -> dict[str, Any]:
        [item] = reading.items(self.agent, [memory], is_full=is_full)
        return to_json(item)


class Memories(MemoryView):
    def get(self, request: Request, store: str) -> Response:
        """List the memories below a folder. With `depth=1`, memories in deeper folders are listed as the folder."""
        query = self.query(MemoriesQuery)
        stores.find(self.agent, self.store)
        prefix, is_full = query.get("path_prefix") or "/", query.get("view") == "full"
        limit = min(query["limit"], wire.MAX_FULL_PAGE) if is_full else query["limit"]
        if not (prefix.startswith("/") and prefix.endswith("/")):
            raise Invalid("path_prefix", "must start and end with '/'")
        if prefix != "/":
            stores.checked_path(prefix.rstrip("/"))
        if query["depth"]:
            after = wire.cursor(query, b"", _PLACE, bytes.fromhex)
            children = reading.children(self.agent, self.store, prefix, after_place=after, limit=limit + 1)
            found, following = wire.paged(children, limit, lambda child: child.place.hex())
            data = self._mixed(found, is_full=is_full)
        else:
            number = wire.cursor(query, 0)
            memories = reading.page(self.agent, self.store, prefix, after_number=number, limit=limit + 1)
            found, following = wire.paged(memories, limit, lambda memory: memory.number)
            data = [to_json(item) for item in reading.items(self.agent, found, is_full=is_full)]
        return Response({"data": data, "next_page": following})

    def _mixed(self, children: list[Child], *, is_full: bool) -> list[dict[str, Any]]:
        items = reading.items(self.agent, [child.memory for child in children], is_full=is_full)
        return [
            _folder(child, item) if child.is_folder else to_json(item)
            for child, item in zip(children, items, strict=True)
        ]

    def post(self, request: Request, store: str) -> Response:
        view, payload = self.query(wire.ViewQuery).get("view"), self.payload(MemoryIn)
        edited = stores.add(self.agent, self.store, payload["path"], payload["content"], self.actor)
        return Response(to_json(reading.added(self.agent, edited, is_full=view == "full")))


class OneMemory(MemoryView):
    def get(self, request: Request, store: str, memory: str) -> Response:
        view = self.query(wire.ViewQuery).get("view")
        found = stores.memory(self.agent, self.store, wire.number_of(memory, "mem_"))
        return Response(self.shown(found, is_full=view != "basic"))

    def post(self, request: Request, store: str, memory: str) -> Response:
        """Change the content or the path. An update without both changes nothing, as for a store."""
        view, payload = self.query(wire.ViewQuery).get("view"), self.payload(ChangeIn)
        expected = (payload.get("precondition") or {}).get("content_sha256")
        number = wire.number_of(memory, "mem_")
        wanted = {"content": payload.get("content"), "path": payload.get("path"), "expected": expected}
        changed = stores.revise(self.agent, self.store, number, self.actor, **wanted)
        return Response(self.shown(changed, is_full=view == "full"))

    patch = post  # as in the first version of the API

    def delete(self, request: Request, store: str, memory: str) -> Response:
        expected = self.query(DeleteQuery).get("expected_content_sha256")
        if expected is not None and not _SHA256.fullmatch(expected):
            raise Invalid("expected_content_sha256", "must have 64 lower-case hexadecimal digits")
        stores.discard(self.agent, self.store, wire.number_of(memory, "mem_"), self.actor, expected=expected)
        return Response({"id": memory, "type": "memory_deleted"})


def to_json(item: Item) -> dict[str, Any]:
    memory = item.memory
    return {
        "id": wire.memory_id(memory.number),
        "type": "memory",
        "memory_store_id": wire.store_id(memory.store or 0),
        "path": item.label.path,
        "content": item.content,
        "content_size_bytes": item.label.size,
        "content_sha256": item.label.sha256,
        "memory_version_id": wire.version_id(item.version, memory.number),
        "created_at": memory.created_at,
        "updated_at": item.updated_at,
    }


def _folder(child: Child, item: Item) -> dict[str, Any]:
    parts = item.label.path.split("/")[: len(child.place) // PLACE_BYTES + 1]
    return {"type": "memory_prefix", "path": "/".join(parts) + "/"}
