"""Request bodies: strict JSON of bounded size, in which nothing unknown stands.

What is wrong is told by field and without the value. What a memory may say is for `memory.policy.validation` to check.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from email.message import Message
from functools import cache
from typing import IO, Any

from django.conf import settings
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.utils.serializer_helpers import BindingDict

DEEPEST = 20
_AT_ONCE = 2**18  # bytes read at a time
ERRORS = 10  # of one list that are told: who sends thousands is not answered with thousands


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self, most: int) -> None:
        super().__init__(f"The body is larger than {most:,} bytes.")


class BrokenOff(ParseError):
    """Part of a body is no body: of an import cut between two lines nothing would show."""

    default_detail = "The body breaks off."


class Arriving:
    """A body as it comes over the network, plain and in UTF-8. Raises UnsupportedMediaType."""

    def __init__(self, stream: IO[bytes], media_type: str | None, context: Mapping[str, Any] | None) -> None:
        headers = (context or {})["request"].META
        told = Message()
        told["Content-Type"] = media_type or ""
        if str(told.get_param("charset", "utf-8")).lower() != "utf-8":
            raise UnsupportedMediaType("")
        if headers.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
            raise UnsupportedMediaType("")
        self._stream = stream
        self._told = 0 if "HTTP_TRANSFER_ENCODING" in headers else int(headers["CONTENT_LENGTH"])

    def whole(self, most: int) -> io.BytesIO:
        """All of it, in memory: what it says is not to lie on a disk. Raises TooLarge, BrokenOff."""
        held = io.BytesIO()
        while part := self._received(min(_AT_ONCE, most + 1 - held.tell())):
            held.write(part)
            if held.tell() > most:
                raise TooLarge(most)
        if held.tell() < self._told:
            raise BrokenOff
        held.seek(0)
        return held

    def _received(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except OSError:
            raise BrokenOff from None


class StrictJSON(BaseParser):
    """`application/json`, UTF-8, of at most API_BODY_BYTES; no NaN, no name twice, no half character, no deep nest."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        text = Arriving(stream, media_type, parser_context).whole(settings.API_BODY_BYTES).getvalue()
        problem = "is not JSON"
        try:
            value = json.loads(text.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_object)
            problem = "is nested too deeply" if _depth(value) > DEEPEST else ""
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeDecodeError:
            problem = "is not UTF-8"
        except UnicodeEncodeError:
            problem = "holds half a surrogate pair, which is no character"
        except RecursionError:
            problem = "is nested too deeply"
        except ValueError:
            pass
        if problem:  # not in the handlers: the errors there hold the body
            raise ParseError(f"The body {problem}.")
        return value


def _refuse(_: str) -> None:
    raise ValueError


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


def _depth(value: Any) -> int:
    """Of lists and objects within each other; what is deeper than allowed is not looked at."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST:
        level = [
            each
            for part in level
            if isinstance(part, dict | list)
            for each in (part.values() if isinstance(part, dict) else part)
            if isinstance(each, dict | list)
        ]
        depth += 1
    return depth


class Text(serializers.CharField):
    """Text as it is: no number taken for one, nothing trimmed."""

    default_error_messages = {"invalid": "must be text"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"trim_whitespace": False} | options))

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    """A whole number: no text, no float, no boolean taken for one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"max_value": 2**53} | options))

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, str | float | bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Choice(serializers.ChoiceField):
    """One of a few words; a wrong one is not repeated."""

    def __init__(self, choices: Any, **options: Any) -> None:
        listed = ", ".join(str(choice) for choice in choices)
        super().__init__(choices, **({"error_messages": {"invalid_choice": f"must be one of: {listed}"}} | options))


class List(serializers.ListField):
    """A list of which its length is looked at first, and no more than a few errors are told."""

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        checked: list[Any] = super().to_internal_value(data)
        return checked

    def run_child_validation(self, data: Any) -> list[Any]:
        checked: list[Any] = []
        errors: dict[Any, Any] = {}
        for place, each in enumerate(data):
            try:
                checked.append(self.child.run_validation(each))
            except serializers.ValidationError as wrong:
                errors[place] = wrong.detail
                if len(errors) == ERRORS:
                    break
        if errors:
            raise serializers.ValidationError(errors)
        return checked


class Body(serializers.Serializer[Any]):
    """An object of the fields it names, and no other."""

    default_error_messages = {"unknown": "is not a field here. Fields: {fields}", "invalid": "must be an object"}

    @property
    def fields(self) -> BindingDict:  # kept by the class, where DRF has each object make its own
        return _fields(type(self))

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        if unknown:
            told = self.error_messages["unknown"].format(fields=", ".join(self.fields))
            raise serializers.ValidationError({"body": [f"{len(unknown)} name in it {told}"]}, code="unknown_field")
        return super().to_internal_value(data)


@cache
def _fields(body: type[Body]) -> BindingDict:
    """A body's fields, made once: checking keeps nothing in them, and copying them took longer than checking."""
    made = BindingDict(body())
    for name, field in body().get_fields().items():
        made[name] = field
    return made


class Page(Body):
    """Which part of a list: what follows `cursor`, so many."""

    cursor = serializers.IntegerField(min_value=0, max_value=2**53, default=0, help_text="`next` of the page before")
    limit = serializers.IntegerField(min_value=1, max_value=500, default=100)
