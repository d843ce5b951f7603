"""The rows of a list as CSV or JSON, without content. The list's search and filters apply."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse

FORMATS = ("csv", "json")
MOST = 100_000  # rows


def response(rows: QuerySet[Any], columns: Sequence[str], form: str, name: str) -> StreamingHttpResponse:
    """Stream the rows. Each column is an attribute of the row. It may contain dots."""
    values = ([_value(row, column) for column in columns] for row in rows.iterator(chunk_size=2_000))
    names = [column.replace(".", "_") for column in columns]
    body = _csv(names, values) if form == "csv" else _json(names, values)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(body, content_type=kind, headers=headers)


def _value(row: Any, column: str) -> Any:
    value = reduce(lambda found, name: getattr(found, name, None), column.split("."), row)
    return value.isoformat() if isinstance(value, datetime) else value


class _Line:
    """A file for the csv module that returns what is written."""

    def write(self, text: str) -> str:
        return text


def _csv(names: list[str], rows: Iterable[list[Any]]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(names)
    for row in rows:
        yield writer.writerow([_harmless(each) for each in row])


def _harmless(value: Any) -> Any:
    """A text that a spreadsheet does not take for a formula."""
    text = json.dumps(value) if isinstance(value, dict | list) else value
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _json(names: list[str], rows: Iterable[list[Any]]) -> Iterator[str]:
    start = "[\n"
    for row in rows:
        yield start + json.dumps(dict(zip(names, row, strict=True)), default=str)
        start = ",\n"
    yield "\n]\n" if start == ",\n" else "[]\n"
