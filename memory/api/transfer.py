"""API to export and import memories. An export is streamed. An import is read completely before it is stored. A large
import is a job of a worker."""

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import IO, Any, cast

from django.conf import settings
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.access.authentication import require_valid_key
from memory.api.base.bodies import OPTIONAL_TEXT, Body, BodyParser, Choice, Text
from memory.api.base.schema import ErrorOut
from memory.api.base.views import AgentView, require_client
from memory.transfer import exporting, import_jobs, importing
from memory.transfer.export_formats import EXPORTS, HELP, Export, writer
from memory.transfer.exporting import Losses, Writer
from memory.transfer.importing import IMPORTS


class ImportParser(BodyParser):
    """Reads a body of at most API_IMPORT_BYTES, as bytes. The whole body is read before the agent is locked."""

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        return self.read(stream, parser_context, settings.API_IMPORT_BYTES)


class ExportQuery(Body):
    discarded = serializers.BooleanField(default=False, help_text="include discarded memories (only in jsonl)")
    beneath = serializers.BooleanField(default=False, help_text="include memories beneath (jsonl always does)")
    format = Choice(choices=list(EXPORTS), default="jsonl", help_text=HELP)


class ImportQuery(Body):
    format = Choice(
        choices=list(IMPORTS),
        default="jsonl",
        help_text="; ".join(f"{name}: {each.what} ({each.media_type})" for name, each in IMPORTS.items()),
    )
    project = Text(
        **OPTIONAL_TEXT,
        max_length=100,
        help_text="project for memories that need one, if the file does not name it; default: default-project",
    )


class LeftOutOut(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="the part of the file, at most 200 characters; empty for the whole file")
    why = serializers.CharField()


class DoneOut(serializers.Serializer[Any]):
    what = serializers.CharField()
    memories = serializers.IntegerField()


class ImportedOut(serializers.Serializer[Any]):
    imported = serializers.IntegerField()
    tokens = serializers.IntegerField()
    constitutional = serializers.IntegerField(help_text="number of marks `constitutional`, which are not imported")
    discarded = serializers.IntegerField(required=False, help_text="only jsonl: discarded memories that were left out")
    ignored = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="the first 100 unknown keys, each cut to 64 characters; only for jsonl",
    )
    left_out = serializers.IntegerField(required=False, help_text="other formats: number of parts that were left out")
    named = LeftOutOut(many=True, required=False, help_text="the first 100 parts that were left out")
    transformed = DoneOut(many=True, required=False, help_text="other formats: at most 100 kinds of changes")


class JobOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    state = serializers.ChoiceField([*import_jobs.OPEN, import_jobs.DONE, import_jobs.FAILED])
    entry = serializers.IntegerField(allow_null=True, help_text="number for a rollback; null: nothing is stored yet")
    imported = serializers.IntegerField(help_text="number of memories that are stored")
    result = ImportedOut(allow_null=True, help_text="null until the state is done")
    error = ErrorOut(allow_null=True, help_text="null unless the state is failed")


def _media_types(formats: Iterable[Export | importing.Import], json: OpenApiTypes) -> dict[str, OpenApiTypes]:
    """Map each media type to the schema of its body. `json` is the schema of a JSON document."""
    kinds = [each.media_type.partition(";")[0] for each in formats]
    return {kind: json if kind == "application/json" else OpenApiTypes.STR for kind in kinds}


class ExportView(AgentView):
    @extend_schema(
        operation_id="export",
        parameters=[ExportQuery],
        responses={(200, kind): schema for kind, schema in _media_types(EXPORTS.values(), OpenApiTypes.OBJECT).items()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Export all memories, in the order of their ids. The default format has one JSON object per line. Export
        also works while memory is off."""
        query = self.query(ExportQuery)
        self.begin_download()
        write = writer(query["format"], with_discarded=query["discarded"])
        chosen = EXPORTS[query["format"]]
        with_beneath = query["beneath"] or query["format"] == "jsonl"
        pieces = self._pieces(write, with_beneath=with_beneath, with_discarded=query["discarded"])
        response = StreamingHttpResponse(_Begun(pieces), content_type=chosen.media_type)
        response["Content-Disposition"] = f'attachment; filename="{self.agent.slug}{chosen.ending}"'
        return response

    def _pieces(self, write: Writer, **which: bool) -> Generator[bytes, None, None]:
        with closing(exporting.memories(self.agent, **which)) as memories:
            first = list(islice(memories, 1))  # this reads one state of the silo
            require_valid_key()
            until = time.monotonic() + EXPORT_SECONDS
            for piece in write(self.agent, chain(first, memories), Losses()):
                if time.monotonic() > until:  # the client reads too slowly, and the key may have ended
                    raise ExportTooSlow
                yield piece


EXPORT_SECONDS = 900.0


class ExportTooSlow(ConnectionAbortedError):
    """The client did not read the whole export within EXPORT_SECONDS. The connection is closed."""


class _Begun:
    """The body of an export. Its first piece is made before the response begins. So an error in this piece can set the
    status of the response.

    When the response is closed, the body is closed too, even if the client disconnects. Otherwise the garbage collector
    could close the body's cursor during another statement on the same connection. The thread would then wait forever.
    """

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces, self._first = pieces, next(pieces, b"")

    def __iter__(self) -> Iterator[bytes]:
        return chain([self._first], self._pieces)

    def close(self) -> None:
        self._pieces.close()


class Import(AgentView):
    def get_parsers(self) -> list[Any]:
        """Return one parser, which accepts the media type of the format."""
        name = getattr(getattr(self, "request", None), "GET", {}).get("format") or ""  # the schema has no request
        return [ImportParser(IMPORTS.get(name, IMPORTS["jsonl"]).media_type)]

    @extend_schema(
        operation_id="import",
        parameters=[ImportQuery],
        request=_media_types(IMPORTS.values(), OpenApiTypes.ANY),
        responses={201: ImportedOut, 202: JobOut},
    )
    def post(self, request: Request) -> Response:
        """Import the memories of a file, all or none. In JSON Lines, each line is a memory, and an error gives the
        number of the first wrong line. In other formats, parts that are not memories are left out, and the response
        says why. A file with more than 500 entries or 1 MB becomes a job of a worker. Then the response is a 202, and
        its header `Location` has the address of the job's state."""
        query = self.query(ImportQuery)
        import_jobs.require_none(self.agent)
        body = cast(bytes, request.data or b"")  # without a body the framework gives an empty object
        self.take_turn()
        require_client(request)
        found = import_jobs.check_small(body, **query)
        require_client(request)
        if found is not None:
            return Response(found.store(self.agent, self.actor).figures(query["format"]), status.HTTP_201_CREATED)
        number = import_jobs.add(self.agent, self.key, body, **query)
        state = import_jobs.describe(self.agent, number)
        return Response(state, status.HTTP_202_ACCEPTED, headers={"Location": f"{request.path}/{number}"})


class ImportState(AgentView):
    @extend_schema(operation_id="import_state", responses=JobOut)
    def get(self, request: Request, number: int) -> Response:
        """Get the state of the agent's newest import job."""
        return Response(import_jobs.describe(self.agent, number))
