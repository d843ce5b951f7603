"""A silo's memories out and in: out as they are read, in once they are here."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import IO, Any, cast

from django.conf import settings
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, BodyParser, Choice, Text
from memory.api.base.views import AgentView
from memory.errors import Invalid
from memory.transfer import exporting, importing
from memory.transfer.export_formats import EXPORTS, writer
from memory.transfer.exporting import NotHeld, Writer
from memory.transfer.formats import jsonl
from memory.transfer.importing import IMPORTS


class ImportParser(BodyParser):
    """Gives the body as bytes, at most API_IMPORT_BYTES. All of it is read before the agent is locked."""

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        return self.read(stream, parser_context, settings.API_IMPORT_BYTES)


class ExportQuery(Body):
    discarded = serializers.BooleanField(default=False, help_text="discarded memories too (jsonl alone)")
    format = Choice(
        choices=list(EXPORTS),
        default="jsonl",
        help_text="; ".join(f"{name}: {each.what}" for name, each in EXPORTS.items()),
    )


class ImportQuery(Body):
    format = Choice(
        choices=list(IMPORTS),
        default="jsonl",
        help_text="; ".join(f"{name}: {each.what} ({each.media_type})" for name, each in IMPORTS.items()),
    )
    project = Text(
        default="",
        allow_blank=True,
        max_length=100,
        help_text="of memories of a project, where the format has no projects; else default-project",
    )


class LeftOutOut(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="which part of the file, cut at 200 characters; empty for the file")
    why = serializers.CharField()


class DoneOut(serializers.Serializer[Any]):
    what = serializers.CharField()
    memories = serializers.IntegerField()


class ImportedOut(serializers.Serializer[Any]):
    imported = serializers.IntegerField()
    tokens = serializers.IntegerField()
    constitutional = serializers.IntegerField(help_text="marked so there: the flag is not taken over")
    discarded = serializers.IntegerField(
        required=False, help_text="of jsonl: lines left out, for they were discarded where they come from"
    )
    ignored = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="of jsonl: keys that mean nothing here: a hundred at most, cut at 64 characters",
    )
    left_out = serializers.IntegerField(required=False, help_text="of other formats: what is no memory")
    named = LeftOutOut(many=True, required=False, help_text="of what was left out the first hundred")
    transformed = DoneOut(
        many=True, required=False, help_text="of other formats: what was done, a hundred things at most"
    )


def _media_types(formats: Iterable[exporting.Export | importing.Import], json: OpenApiTypes) -> dict[str, OpenApiTypes]:
    """The schema of a body in each media type; `json` of a JSON document."""
    kinds = [each.media_type.partition(";")[0] for each in formats]
    return {kind: json if kind == "application/json" else OpenApiTypes.STR for kind in kinds}


class Export(AgentView):
    @extend_schema(
        operation_id="export",
        parameters=[ExportQuery],
        responses={(200, kind): schema for kind, schema in _media_types(EXPORTS.values(), OpenApiTypes.OBJECT).items()},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Every memory, in order of id, one JSON object a line or in another format; also while memory is switched
        off."""
        asked = self.asked(ExportQuery)
        write = writer(asked["format"], with_discarded=asked["discarded"])
        chosen = EXPORTS[asked["format"]]
        response = StreamingHttpResponse(
            _Begun(self._pieces(write, with_discarded=asked["discarded"])), content_type=chosen.media_type
        )
        response["Content-Disposition"] = f'attachment; filename="{self.agent.slug}{chosen.ending}"'
        return response

    def _pieces(self, write: Writer, *, with_discarded: bool) -> Generator[bytes, None, None]:
        with closing(exporting.memories(self.agent, with_discarded=with_discarded)) as memories:
            yield from write(self.agent, memories, NotHeld())


class _Begun:
    """A body whose first piece is made at once, so that an error there is a response of its own.

    It is closed with the response, also when the client goes away. If it were left to the garbage collector, its cursor
    could be closed during another request's statement on the same connection, which would wait for itself.
    """

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces, self._first = pieces, next(pieces, b"")

    def __iter__(self) -> Iterator[bytes]:
        return chain([self._first], self._pieces)

    def close(self) -> None:
        self._pieces.close()


class Import(AgentView):
    def get_parsers(self) -> list[Any]:
        """One parser, for the media type of the format."""
        asked = getattr(getattr(self, "request", None), "GET", {}).get("format") or ""  # a schema has no request
        return [ImportParser(IMPORTS.get(asked, IMPORTS["jsonl"]).media_type)]

    @extend_schema(
        operation_id="import",
        parameters=[ImportQuery],
        request=_media_types(IMPORTS.values(), OpenApiTypes.ANY),
        responses={201: ImportedOut},
    )
    def post(self, request: Request) -> Response:
        """Store the memories of a file, or none. Of JSON Lines, each line is one: the first that is bad is told by its
        number. In other formats what is no memory is left out with the reason, and a file that is none of the format is
        refused."""
        asked = self.asked(ImportQuery)
        body = io.BytesIO(cast(bytes, request.data or b""))  # without a body the framework gives an empty object
        imported = self._lines(body, asked["project"]) if asked["format"] == "jsonl" else self._file(body, **asked)
        return Response(imported, status.HTTP_201_CREATED)

    def _lines(self, body: IO[bytes], project: str) -> dict[str, Any]:
        if project:
            raise Invalid("project", "is for other formats: a line of JSON Lines names its own")
        done = jsonl.load(self.agent, jsonl.lines_of("the body", body), self.actor)
        return {
            "imported": done.imported,
            "tokens": done.tokens,
            "discarded": done.discarded,
            "constitutional": done.constitutional,
            "ignored": sorted(done.names),
        }

    def _file(self, body: IO[bytes], *, format: str, project: str) -> dict[str, Any]:
        chosen = IMPORTS[format]
        done = importing.load(self.agent, chosen.read(body, ""), self.actor, project=project, expected=chosen.what)
        return {
            "imported": done.imported,
            "tokens": done.tokens,
            "constitutional": done.constitutional,
            "left_out": done.left_out,
            "named": LeftOutOut(done.named, many=True).data,
            "transformed": [{"what": what, "memories": count} for what, count in done.transformed.most_common()],
        }
