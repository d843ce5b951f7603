"""A silo's memories out and in: out as they are read, in once they are here."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import IO, Any, cast

from django.conf import settings
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from config.api.bodies import Arriving, Body, Choice
from config.api.views import AgentView
from memory.formats import export, jsonl
from memory.formats.export import NotHeld, Writer
from memory.formats.exports import EXPORTS, writer

LINES = "application/x-ndjson"


class Lines(BaseParser):
    """The body itself, of at most API_IMPORT_BYTES. It is here before anything is locked: others write meanwhile."""

    media_type = LINES

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        return Arriving(stream, media_type, parser_context).whole(settings.API_IMPORT_BYTES)


class ExportQuery(Body):
    discarded = serializers.BooleanField(default=False, help_text="discarded memories too (jsonl alone)")
    format = Choice(
        choices=list(EXPORTS),
        default="jsonl",
        help_text="; ".join(f"{name}: {each.what}" for name, each in EXPORTS.items()),
    )


class ImportedOut(serializers.Serializer[Any]):
    imported = serializers.IntegerField()
    tokens = serializers.IntegerField()
    discarded = serializers.IntegerField(help_text="lines left out: they were discarded where they come from")
    constitutional = serializers.IntegerField(help_text="lines marked so: the flag is not taken over")
    ignored = serializers.ListField(
        child=serializers.CharField(), help_text="keys that mean nothing here: a hundred at most, cut at 64 characters"
    )


class Export(AgentView):
    @extend_schema(
        operation_id="export",
        parameters=[ExportQuery],
        responses={(200, each.media_type.partition(";")[0]): OpenApiTypes.STR for each in EXPORTS.values()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Every memory, in order of id, one JSON object a line or in another format; also while memory is switched
        off."""
        asked = self.asked(ExportQuery)
        write = writer(asked["format"], with_discarded=asked["discarded"])
        chosen = EXPORTS[asked["format"]]
        answer = StreamingHttpResponse(
            _Begun(self._pieces(write, with_discarded=asked["discarded"])), content_type=chosen.media_type
        )
        answer["Content-Disposition"] = f'attachment; filename="{self.agent.slug}{chosen.ending}"'
        return answer

    def _pieces(self, write: Writer, *, with_discarded: bool) -> Generator[bytes, None, None]:
        with closing(export.memories(self.agent, with_discarded=with_discarded)) as memories:
            yield from write(self.agent, memories, NotHeld())


class _Begun:
    """Pieces of which the first is there already: what keeps them from beginning is told, not a 200 that breaks off.

    They are closed with the answer, also when its client is given up. Left to the garbage, their cursor would be closed
    whenever that is collected: in the midst of another request's statements on the same connection, whose lock this
    thread has, and would wait for for ever.
    """

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces, self._first = pieces, next(pieces, b"")

    def __iter__(self) -> Iterator[bytes]:
        return chain([self._first], self._pieces)

    def close(self) -> None:
        self._pieces.close()


class Import(AgentView):
    parser_classes = (Lines,)

    @extend_schema(operation_id="import", request={LINES: OpenApiTypes.STR}, responses={201: ImportedOut})
    def post(self, request: Request) -> Response:
        """Store a memory for each line, or none: the first bad line is told by its number."""
        body = request.data or io.BytesIO()  # without one the framework has an object of no fields instead
        done = jsonl.load(self.agent, jsonl.lines_of("the body", cast(IO[bytes], body)), self.actor)
        return Response(
            {
                "imported": done.imported,
                "tokens": done.tokens,
                "discarded": done.discarded,
                "constitutional": done.constitutional,
                "ignored": sorted(done.names),
            },
            status.HTTP_201_CREATED,
        )
