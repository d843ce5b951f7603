"""The versions of memories: `/v1/memory_stores/ID/memory_versions`. They are entries of the audit trail."""

import re
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Choice, Text
from memory.api.stores import wire
from memory.api.stores.memories import MemoryView
from memory.consent import redaction
from memory.errors import NotFound
from memory.models import StoreVersion
from memory.search import stores as reading
from memory.search.stores import Version
from memory.writing import stores
from memory.writing.places import CREATED, DELETED, MODIFIED

_ID = re.compile(r"(\d{1,16})_(\d{1,16})")


class VersionsQuery(wire.PageQuery, wire.ViewQuery):
    memory_id = Text(required=False)
    operation = Choice([CREATED, MODIFIED, DELETED], required=False)
    session_id = Text(required=False)
    api_key_id = Text(required=False)
    service_account_id = Text(required=False)
    created_at_gte = serializers.DateTimeField(required=False)
    created_at_lte = serializers.DateTimeField(required=False)


class Versions(MemoryView):
    def get(self, request: Request, store: str) -> Response:
        """List versions, newest first."""
        query = self.query(VersionsQuery)
        stores.find(self.agent, self.store)
        is_full = query.get("view") == "full"
        limit = min(query["limit"], wire.MAX_FULL_PAGE) if is_full else query["limit"]
        wanted: dict[str, Any] = {"actor": found} if (found := wire.actor_lookups(query)) else {}
        if "memory_id" in query:
            wanted["number"] = wire.number_of(query["memory_id"], "mem_")
        names = {"operation": "operation", "created_at_gte": "at__gte", "created_at_lte": "at__lte"}
        wanted |= {lookup: query[name] for name, lookup in names.items() if name in query}
        before = wire.cursor(query, None, _ID, _pair)
        rows = reading.versions(self.agent, self.store, wanted, before=before, limit=limit + 1)
        page, following = wire.paged(rows, limit, lambda row: f"{row.seq}_{row.number}")
        data = [to_json(version) for version in reading.opened(self.agent, page, is_full=is_full)]
        return Response({"data": data, "next_page": following})


class OneVersion(MemoryView):
    def get(self, request: Request, store: str, version: str) -> Response:
        view = self.query(wire.ViewQuery).get("view")
        [found] = reading.opened(self.agent, [self.row(version)], is_full=view != "basic")
        return Response(to_json(found))

    def row(self, version: str) -> StoreVersion:
        """Raises NotFound."""
        found = _ID.fullmatch(version.removeprefix("memver_")) if version.startswith("memver_") else None
        seq, number = _pair(found[0]) if found else (0, 0)
        stores.find(self.agent, self.store)
        row = StoreVersion.objects.filter(agent_id=self.agent.pk, store=self.store, seq=seq, number=number).first()
        if row is None:
            raise NotFound("The version does not exist in this memory store.")
        return row


class Redact(OneVersion):
    shows_later = True

    def post(self, request: Request, store: str, version: str) -> Response:
        """Remove the content and the path of a version permanently. The newest version of a memory stays, until the
        memory is changed or deleted."""
        row = self.row(version)
        if row.redaction is None:
            redaction.redact_version(self.agent, row, self.actor)
        return self.get(request, store, version)


def _pair(text: str) -> tuple[int, int]:
    seq, number = text.split("_")
    return int(seq), int(number)


def to_json(version: Version) -> dict[str, Any]:
    row, label = version.row, version.label
    has_content = label is not None and row.operation != DELETED
    return {
        "id": wire.version_id(row.seq, row.number),
        "type": "memory_version",
        "memory_store_id": wire.store_id(row.store),
        "memory_id": wire.memory_id(row.number),
        "operation": row.operation,
        "created_at": row.at,
        "created_by": wire.actor(version.entry),
        "path": label.path if label else None,
        "content": version.content,
        "content_sha256": label.sha256 if label and has_content else None,
        "content_size_bytes": label.size if label and has_content else None,
        "redacted_at": version.redacted_by.at if version.redacted_by else None,
        "redacted_by": wire.actor(version.redacted_by) if version.redacted_by else None,
    }
