"""Request bodies. A body is strict JSON of limited size, without unknown fields.

Errors name the field and never repeat its value. `memory.policy.validation` checks the content of memories.
"""

import json
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn, cast

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser

MAX_DEPTH = 20  # nested lists and objects
MAX_SIGNS = 200_000  # commas, brackets and braces outside texts: reading 8 MB of short values takes many seconds
MAX_DURATION = 100  # characters
MAX_ERRORS = 10  # errors of one list in a response
OPTIONAL_TEXT: Any = {"required": False, "allow_blank": True, "default": ""}
_SIGNS = b",", b"[", b"{"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # or its beginning. It never goes back, which would need gigabytes of RAM
_TOO_MANY = re.compile(rb"(?:(?:[^\"\[{,]++|%b)*+[\[{,]){%d}+" % (_TEXT, MAX_SIGNS + 1), re.DOTALL)
_ENDS_EARLY = "The body is shorter than Content-Length says."


class Duration(serializers.DurationField):
    """A period of time. Django needs seconds to read a long text, and no other thread runs meanwhile."""

    def to_internal_value(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > MAX_DURATION:
            self.fail("invalid", format="[DD] [HH:[MM:]]ss[.uuuuuu]")
        return super().to_internal_value(value)


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class BodyParser(BaseParser):
    """Reads a whole body into RAM, never to disk. The body must be UTF-8 and not compressed."""

    def read(self, stream: IO[bytes], context: Mapping[str, Any], limit: int) -> bytes:
        """Return the body. Raises UnsupportedMediaType or TooLarge. If the body is too short, raises ParseError."""
        request = context["request"]
        charset = request.content_params.get("charset", "utf-8")
        encoding = request.headers.get("Content-Encoding", "identity")
        if (charset.lower(), encoding.lower()) != ("utf-8", "identity"):
            raise UnsupportedMediaType("")
        length = 0 if "Transfer-Encoding" in request.headers else int(request.META["CONTENT_LENGTH"])
        try:
            body = stream.read(limit + 1)
        except OSError:
            raise ParseError(_ENDS_EARLY) from None
        if len(body) > limit:
            raise TooLarge(f"The body is larger than {limit:,} bytes.")
        if len(body) < length:
            raise ParseError(_ENDS_EARLY)
        return body


class StrictJSON(BodyParser):
    """Parses `application/json` of at most API_BODY_BYTES.

    Refuses NaN, repeated names, lone surrogates and deep nesting.
    """

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        body = self.read(stream, parser_context or {}, settings.API_BODY_BYTES)
        is_large = sum(map(body.count, _SIGNS)) > MAX_SIGNS  # or it has long texts
        problem = "has too many values" if is_large and _TOO_MANY.match(body) else ""
        try:
            value = None if problem else json.loads(body.decode(), **_STRICT)
            if _depth(value) > MAX_DEPTH:
                problem = "is nested too deeply"
        except UnicodeDecodeError:
            problem = "is not UTF-8"
        except UnicodeEncodeError:
            problem = "contains a lone surrogate, which is not valid Unicode"
        except RecursionError:
            problem = "is nested too deeply"
        except ValueError:
            problem = "is not JSON, repeats a name in an object, or has an integer with too many digits"
        if problem:  # raised outside the handlers, because their exceptions contain the body
            raise ParseError(f"The body {problem}.")
        return value


def _refuse(_: str) -> None:
    raise ValueError


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


# A function of Python reads each float, because other threads can run before it is called.
_STRICT: Any = {"parse_constant": _refuse, "parse_float": lambda text: float(text), "object_pairs_hook": _object}


def _depth(value: Any) -> int:
    """The depth of nested lists and objects. Raises UnicodeEncodeError for a lone surrogate."""
    if isinstance(value, str):
        value.encode()
    if isinstance(value, dict):
        "".join(value).encode()
        value = value.values()
    elif not isinstance(value, list):
        return 0
    return 1 + max(map(_depth, value), default=0)


class Text(serializers.CharField):
    """A text field. It keeps white space and refuses numbers."""

    default_error_messages = {"invalid": "must be text"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"trim_whitespace": False} | options))

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    """A whole number. Text, a float or a boolean is refused."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_value": 2**53} | options))

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, str | float | bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Boolean(serializers.BooleanField):
    """JSON's true or false. Text and numbers are refused."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class Numbers(serializers.ListField):
    """A list of whole numbers in a response."""

    child = serializers.IntegerField()


class NumberOrNull(serializers.IntegerField):
    """A number in a response. 0 becomes null."""

    def to_representation(self, value: Any) -> Any:
        return value or None


class Choice(serializers.ChoiceField):
    """One of a few allowed values. The error lists the allowed values and does not repeat the received value."""

    default_error_messages = {"invalid_choice": "must be one of: {choices}"}

    def fail(self, key: str, **details: Any) -> NoReturn:
        super().fail(key, choices=", ".join(map(str, self.choices)), **details)


class List(serializers.ListField):
    """A list. The length is checked before the items. After `MAX_ERRORS` wrong items, the others are not checked."""

    def run_child_validation(self, data: Any) -> list[Any]:
        if self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        checked, errors = [], {}
        for place, item in enumerate(data):
            try:
                checked.append(self.child.run_validation(item))
            except serializers.ValidationError as error:
                errors[place] = error.detail
                if len(errors) == MAX_ERRORS:
                    break
        if errors:
            raise serializers.ValidationError(cast(Any, errors))
        return checked


@extend_schema_field(OpenApiTypes.OBJECT)
class FreeForm(serializers.JSONField):
    """An object that can have any keys. The schema does not list the keys. The help text of the field says why."""


class Body(serializers.Serializer[Any]):
    """An object without unknown fields."""

    default_error_messages = {
        "unknown": "has unknown fields ({count}). Known fields: {fields}",
        "invalid": "must be an object",
    }

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        if unknown:
            problem = self.error_messages["unknown"].format(count=len(unknown), fields=", ".join(self.fields))
            raise serializers.ValidationError({"body": [problem]}, code="unknown_field")
        return super().to_internal_value(data)


class Page(Body):
    """One page of a list: up to `limit` items after `cursor`."""

    cursor = serializers.IntegerField(min_value=0, max_value=2**53, default=0, help_text="`next` of the previous page")
    limit = serializers.IntegerField(min_value=1, max_value=500, default=100)
