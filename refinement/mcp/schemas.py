"""JSON Schemas of the API's serializers, for the tools' arguments and results."""

from functools import cache
from typing import Any

from rest_framework import serializers

_TYPES: tuple[tuple[type[serializers.Field[Any, Any, Any, Any]], str], ...] = (
    (serializers.BooleanField, "boolean"),
    (serializers.IntegerField, "integer"),
    (serializers.FloatField, "number"),
    (serializers.JSONField, "object"),
)
_RENAMED = {"max_length": "maxLength", "max_value": "maximum", "min_value": "minimum"}


@cache
def schema(form: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """The schema of an object with the fields of a serializer."""
    return _object(form())


def _object(form: Any) -> dict[str, Any]:
    fields = {name: field for name, field in form.fields.items() if not field.write_only}
    required = [name for name, field in fields.items() if field.required or field.read_only]
    found = {"type": "object", "properties": {name: _field(field) for name, field in fields.items()}}
    return found | ({"required": required} if required else {})


def _field(field: Any) -> dict[str, Any]:
    found = _plain(field)
    if field.allow_null:
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
    return found | ({"description": str(field.help_text)} if field.help_text else {})


def _plain(field: Any) -> dict[str, Any]:
    if isinstance(field, serializers.ListSerializer | serializers.ListField):
        return {"type": "array", "items": _field(field.child)}
    if isinstance(field, serializers.BaseSerializer):
        return _object(field)
    found: dict[str, Any] = {"type": next((name for kind, name in _TYPES if isinstance(field, kind)), "string")}
    if isinstance(field, serializers.ChoiceField):
        found["enum"] = list(field.choices)
    if isinstance(field, serializers.DateTimeField):
        found["format"] = "date-time"
    return found | {name: getattr(field, own) for own, name in _RENAMED.items() if getattr(field, own, None) is not None}
