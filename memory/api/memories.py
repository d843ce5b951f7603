"""API of memories: store, read, revise, discard, restore, search."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, List, Page, Text, Whole
from memory.api.base.errors import ChangedMeanwhile
from memory.api.base.memory_out import CATEGORIES, MemoryOut, WithFile
from memory.api.base.views import IDEMPOTENCY_KEY, AgentView, describe_list, listed
from memory.errors import Invalid, Stale
from memory.models import Agent, Kind, Layer
from memory.policy.validation import MAX_CONTENT, MAX_TAG, MAX_TAGS, Draft
from memory.search import reading
from memory.search.selection import Filters
from memory.silo.silo import Opened, Read
from memory.writing import operations

MAX_BATCH = 500
MAX_CHARACTERS = 1_000_000  # of a batch: the database is locked while they are encrypted and stored
MAX_FOUND = 100
MAX_QUERY = 2_000
QUERY = (
    'words to find; the best match is first. "A phrase" finds these words in this order. -word excludes memories with '
    "the word. tag:NAME finds a tag. An empty text lists the newest memories"
)


# --- requests


class MemoryIn(Body):
    """A memory to store."""

    content = Text(max_length=MAX_CONTENT)
    kind = Choice(Kind.values, required=False, help_text="`core`: permanent; `journal`: the dated log")
    category = Choice(CATEGORIES, required=False)
    project = Text(max_length=100, required=False, allow_blank=True)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    origin = serializers.DateTimeField(required=False, help_text="when it was first recorded; default: now")


class BatchIn(Body):
    memories = List(child=MemoryIn(), min_length=1, max_length=MAX_BATCH)


class RevisionIn(Body):
    content = Text(max_length=MAX_CONTENT, required=False)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)


class FiltersIn(Body):
    kind = Choice(Kind.values, required=False)
    category = Choice(CATEGORIES, required=False)
    project = Text(max_length=100, required=False)
    since = serializers.DateTimeField(required=False, help_text="earliest origin date")
    until = serializers.DateTimeField(required=False, help_text="latest origin date")


class SearchIn(FiltersIn):
    q = Text(max_length=MAX_QUERY, allow_blank=True, default="", help_text=QUERY)
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    layers = List(
        child=Choice(Layer.values[:3]), min_length=1, max_length=3, required=False, help_text="default: all three"
    )
    limit = Whole(min_value=1, max_value=MAX_FOUND, default=10)


class ListQuery(FiltersIn, Page):
    layer = Choice(Layer.values, required=False, help_text="default: core and journal")
    constitutional = serializers.BooleanField(required=False, allow_null=True, default=None)
    discarded = serializers.BooleanField(required=False, default=False)


class LineageQuery(Body):
    lineage = serializers.BooleanField(default=False, help_text="with its sources and its successor")


# --- responses


class StoredOut(MemoryOut, WithFile):
    pass


class FoundOut(MemoryOut):
    superseded = serializers.BooleanField(help_text="another memory of the results replaced it")
    score = serializers.FloatField()


SEARCHED_SINCE = (
    "null if all memories were searched. Otherwise, memories beneath with an earlier origin date were not. Search with "
    "`since` or `until` to find them"
)


BY_MEANING = "false if only words were searched for: the agent has no embedder, or it did not answer (`GET /agent`)"


class FoundPageOut(serializers.Serializer[Any]):
    results = FoundOut(many=True)
    searched_since = serializers.DateTimeField(allow_null=True, help_text=SEARCHED_SINCE)
    by_meaning = serializers.BooleanField(help_text=BY_MEANING)


class LineageOut(MemoryOut):
    sources = MemoryOut(many=True, required=False, help_text="with `lineage`: what it was made from")
    successor = MemoryOut(required=False, allow_null=True, help_text="with `lineage`: what replaced it")


class BatchOut(serializers.Serializer[Any]):
    results = StoredOut(many=True)


_ONCE = [IDEMPOTENCY_KEY]
_IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="the ETag of your last read")


class _Storing(AgentView):
    def store(self, payload: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Store memories, once for each Idempotency-Key. A repeated request gets the memories of the first request."""
        drafts = [Draft(**values).checked() for values in payload]
        reads: list[Read] = []

        def remember(agent: Agent) -> list[int]:
            memories = operations.remember(agent, drafts, self.actor).memories
            for memory, draft in zip(memories, drafts, strict=True):
                reads.append(Read(memory, Opened(draft.content, tuple(draft.tags))))
            return [memory.number for memory in memories]

        numbers = self.once(remember)
        stored, files = reads or reading.several(self.agent, numbers), self.files(numbers)
        return [read.to_dict() | file for read, file in zip(stored, files, strict=True)]


def _characters(read: Read) -> int:
    return len(read.opened.content)


class Memories(_Storing):
    @describe_list("memories_list", ListQuery, "MemoriesOut", MemoryOut)
    def get(self, request: Request) -> Response:
        """List memories by number. To find tags or words, use search, because a URL must not contain content."""
        query = self.query(ListQuery)
        after, limit = query.pop("cursor"), query.pop("limit")
        query["layers"] = [query.pop("layer")] if "layer" in query else ()
        found = reading.page(self.agent, Filters(**query), after=after, limit=limit + 1)
        return listed(found, limit, "memory.number", lambda page: map(Read.to_dict, page), _characters)

    @extend_schema(operation_id="memories_create", request=MemoryIn, responses={201: StoredOut}, parameters=_ONCE)
    def post(self, request: Request) -> Response:
        """Store a memory."""
        [stored] = self.store([self.payload(MemoryIn)])
        return Response(stored, status.HTTP_201_CREATED, headers={"ETag": f'"{stored["version"]}"'})


class Batch(_Storing):
    @extend_schema(operation_id="memories_create_batch", request=BatchIn, responses={201: BatchOut}, parameters=_ONCE)
    def post(self, request: Request) -> Response:
        """Store up to 500 memories with 1,000,000 characters, tags included, all or none."""
        memories = self.payload(BatchIn)["memories"]
        texts = (text for memory in memories for text in (memory["content"], *memory.get("tags", ())))
        if sum(map(len, texts)) > MAX_CHARACTERS:
            raise Invalid("memories", f"must have at most {MAX_CHARACTERS:,} characters together: split the request")
        return Response({"results": self.store(memories)}, status.HTTP_201_CREATED)


class OneMemory(AgentView):
    def handle_exception(self, exc: Exception) -> Response:
        """Return a 412 for Stale. In these requests, a version comes only from the header `If-Match`."""
        return super().handle_exception(ChangedMeanwhile() if isinstance(exc, Stale) else exc)

    @extend_schema(operation_id="memories_read", responses=LineageOut, parameters=[LineageQuery])
    def get(self, request: Request, number: int) -> Response:
        """Read a memory of any layer."""
        response = _memory(self.agent, number)
        if self.query(LineageQuery)["lineage"]:
            sources, successor = reading.lineage_of(self.agent, number)
            response.data["sources"] = [read.to_dict() for read in sources]
            response.data["successor"] = successor and successor.to_dict()
        return response

    @extend_schema(operation_id="memories_revise", request=RevisionIn, responses=MemoryOut, parameters=[_IF_MATCH])
    def patch(self, request: Request, number: int) -> Response:
        """Change a memory's content or tags."""
        payload = self.payload(RevisionIn)
        if not payload:
            raise Invalid("body", "has nothing to change. Send `content`, `tags` or both")
        operations.revise(self.agent, number, self.actor, expect=self._expected(number), **payload)
        self.shows_later = True
        return _memory(self.agent, number)

    @extend_schema(operation_id="memories_discard", responses={204: None}, parameters=[_IF_MATCH])
    def delete(self, request: Request, number: int) -> Response:
        """Discard a memory. It is kept and can be restored."""
        operations.discard(self.agent, [number], self.actor, expect=self._expected(number))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _expected(self, number: int) -> dict[int, int] | None:
        """The version in `If-Match`. None if the header is missing or is `*`. In this case, any version is accepted."""
        payload = self.request.headers.get("If-Match", "").strip()
        if not payload or payload == "*":
            return None
        version = payload.removeprefix("W/").strip('"')
        return {number: int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0}


class Restore(AgentView):
    shows_later = True

    @extend_schema(operation_id="memories_restore", request=None, responses=MemoryOut)
    def post(self, request: Request, number: int) -> Response:
        """Restore a discarded memory. An active memory does not change."""
        operations.restore(self.agent, [number], self.actor)
        return _memory(self.agent, number)


class Search(AgentView):
    shows_later = True

    @extend_schema(operation_id="memories_search", request=SearchIn, responses=FoundPageOut)
    def post(self, request: Request) -> Response:
        """Find memories that are not discarded. The best match is first. A memory beneath comes after the memory that
        replaced it. The query is content, so send it in the body. It is not stored."""
        payload = self.payload(SearchIn)
        query, limit = payload.pop("q"), payload.pop("limit")
        found = reading.search(self.agent, query, filters=Filters(**payload), limit=limit)
        others = {"searched_since": found.searched_since, "by_meaning": found.by_meaning}
        return Response({"results": [found_out(read) for read in found]} | others)


def found_out(read: Read) -> dict[str, Any]:
    """A result of a search. The successor of a superseded memory is a result, too. It is the present one, although
    there may be others between them."""
    successor = read.successor or read.memory.superseded_by
    return read.to_dict() | {"superseded_by": successor, "superseded": read.successor is not None, "score": read.score}


def _memory(agent: Agent, number: int) -> Response:
    memory = reading.one(agent, number)
    return Response(memory.to_dict(), headers={"ETag": f'"{memory.memory.version}"'})
