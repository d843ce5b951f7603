"""Memories over the API: remember, read, revise, discard, restore, search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.access import request_key
from memory.api.base import idempotency
from memory.api.base.bodies import Body, Choice, List, Page, Text, Whole
from memory.api.base.errors import TooLate
from memory.api.base.file_field import WithFile, with_files
from memory.api.base.memory_out import CATEGORIES, MemoryOut, shown
from memory.api.base.views import AgentView, listed
from memory.errors import Invalid, Stale
from memory.models import Agent, Kind
from memory.policy.validation import MAX_CONTENT, MAX_TAG, MAX_TAGS, Draft
from memory.search import reading
from memory.search.reading import Filters, Read
from memory.writing import operations

MAX_BATCH = 500
MAX_FOUND = 100
MAX_QUERY = 2_000


# --- what comes in


class MemoryIn(Body):
    """What is to be remembered."""

    content = Text(max_length=MAX_CONTENT)
    kind = Choice(Kind.values, required=False, help_text="core: permanent; journal: the dated log")
    category = Choice(CATEGORIES, required=False)
    project = Text(max_length=100, required=False, allow_blank=True)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    origin = serializers.DateTimeField(required=False, help_text="when it was first recorded; default: now")


class BatchIn(Body):
    memories = List(child=MemoryIn(), min_length=1, max_length=MAX_BATCH)


class RevisionIn(Body):
    content = Text(max_length=MAX_CONTENT, required=False)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)


class SearchIn(Body):
    q = Text(
        max_length=MAX_QUERY,
        allow_blank=True,
        default="",
        help_text='words, ranked; "quoted phrases" in order; -word excludes; tag:NAME; empty lists the newest',
    )
    kind = Choice(Kind.values, required=False)
    category = Choice(CATEGORIES, required=False)
    project = Text(max_length=100, required=False)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    since = serializers.DateTimeField(required=False, help_text="earliest origin date")
    until = serializers.DateTimeField(required=False, help_text="latest origin date")
    limit = Whole(min_value=1, max_value=MAX_FOUND, default=10)


class ListQuery(Page):
    kind = Choice(Kind.values, required=False)
    category = Choice(CATEGORIES, required=False)
    project = serializers.CharField(max_length=100, required=False)
    since = serializers.DateTimeField(required=False, help_text="earliest origin date")
    until = serializers.DateTimeField(required=False, help_text="latest origin date")
    constitutional = serializers.BooleanField(required=False, allow_null=True, default=None)
    discarded = serializers.BooleanField(required=False, default=False)


# --- what goes out


class StoredOut(MemoryOut, WithFile):
    pass


class FoundOut(MemoryOut):
    score = serializers.FloatField()


class MemoriesOut(serializers.Serializer[Any]):
    results = MemoryOut(many=True)
    next = serializers.CharField(allow_null=True)


class FoundPageOut(serializers.Serializer[Any]):
    results = FoundOut(many=True)


class BatchOut(serializers.Serializer[Any]):
    results = StoredOut(many=True)


_IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="the ETag it was read with")


class Memories(AgentView):
    @extend_schema(operation_id="memories_list", parameters=[ListQuery], responses=MemoriesOut)
    def get(self, request: Request) -> Response:
        """List memories by number. No content is asked for in an address, so not by tag or word: see search."""
        asked = self.asked(ListQuery)
        after, limit = asked.pop("cursor"), asked.pop("limit")
        found = reading.page(self.agent, Filters(**asked), after=after, limit=limit + 1)
        return listed(
            [shown(read) for read in found[:limit]], found[limit - 1].memory.number if len(found) > limit else None
        )

    @extend_schema(
        operation_id="memories_create",
        request=MemoryIn,
        responses={201: StoredOut},
        parameters=[idempotency.PARAMETER],
    )
    def post(self, request: Request) -> Response:
        """Remember something."""
        [read] = _remember(self, [self.given(MemoryIn)])
        [told] = _stored(self.agent, [read])
        return Response(told, status.HTTP_201_CREATED, headers={"ETag": _etag(read)})


class Batch(AgentView):
    @extend_schema(
        operation_id="memories_create_batch",
        request=BatchIn,
        responses={201: BatchOut},
        parameters=[idempotency.PARAMETER],
    )
    def post(self, request: Request) -> Response:
        """Remember up to 500 at once, all or none."""
        read = _remember(self, self.given(BatchIn)["memories"])
        return Response({"results": _stored(self.agent, read)}, status.HTTP_201_CREATED)


def _remember(view: AgentView, given: list[dict[str, Any]]) -> list[Read]:
    """Store, once for each Idempotency-Key. What was stored by an earlier request is read as it stands."""
    drafts = [Draft(**values).checked() for values in given]
    stored: list[Read] = []

    def remember() -> list[int]:
        stored.extend(reading.as_stored(operations.remember(view.agent, drafts, view.actor), drafts))
        return [read.memory.number for read in stored]

    numbers = idempotency.once(view.request, view.agent, remember)
    return stored or reading.several(view.agent, numbers)


def _stored(agent: Agent, read: list[Read]) -> list[dict[str, Any]]:
    """What was stored, with the path of each one's file."""
    files = with_files(agent, [each.memory.number for each in read])
    return [shown(each) | file for each, file in zip(read, files, strict=True)]


class OneMemory(AgentView):
    @extend_schema(operation_id="memories_read", responses=MemoryOut)
    def get(self, request: Request, number: int) -> Response:
        """Read a memory, discarded or not."""
        return self._answer(reading.one(self.agent, number))

    @extend_schema(operation_id="memories_revise", request=RevisionIn, responses=MemoryOut, parameters=[_IF_MATCH])
    def patch(self, request: Request, number: int) -> Response:
        """Change what it says, or its tags."""
        given = self.given(RevisionIn)
        if not given:
            raise Invalid("body", "names nothing to change: give content, tags, or both")
        with _unless_changed():
            operations.revise(self.agent, number, self.actor, expect=self._expected(number), **given)
        return self._answer(reading.one(self.agent, number))

    @extend_schema(operation_id="memories_discard", responses={204: None}, parameters=[_IF_MATCH])
    def delete(self, request: Request, number: int) -> Response:
        """Discard it. It is kept, and can be restored."""
        with _unless_changed():
            operations.discard(self.agent, [number], self.actor, expect=self._expected(number))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _expected(self, number: int) -> dict[int, int] | None:
        """The version `If-Match` names. `*` is any."""
        given = str(self.request.META.get("HTTP_IF_MATCH", "")).strip()
        if not given or given == "*":
            return None
        version = given.removeprefix("W/").strip('"')
        return {number: int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0}

    def _answer(self, read: Read) -> Response:
        return Response(shown(read), headers={"ETag": _etag(read)})


class Restore(AgentView):
    @extend_schema(operation_id="memories_restore", request=None, responses=MemoryOut)
    def post(self, request: Request, number: int) -> Response:
        """Bring a discarded memory back. One that is there is left alone."""
        operations.restore(self.agent, [number], self.actor)
        read = reading.one(self.agent, number)
        return Response(shown(read), headers={"ETag": _etag(read)})


class Search(AgentView):
    @extend_schema(operation_id="memories_search", request=SearchIn, responses=FoundPageOut)
    def post(self, request: Request) -> Response:
        """Find active memories, best first. The query is content: it travels in the body, and is kept nowhere."""
        given = self.given(SearchIn)
        request_key.require_valid()  # the body may have come long after the key; edits ask under their lock
        query, tags, limit = given.pop("q"), given.pop("tags", ()), given.pop("limit")
        found = reading.search(self.agent, query, filters=Filters(**given), tags=tags, limit=limit)
        return Response({"results": [shown(read) | {"score": read.score} for read in found]})


def _etag(read: Read) -> str:
    return f'"{read.memory.version}"'


@contextmanager
def _unless_changed() -> Iterator[None]:
    """What the write path calls stale is, for who sent `If-Match`, a failed precondition."""
    try:
        yield
    except Stale:
        raise TooLate from None
