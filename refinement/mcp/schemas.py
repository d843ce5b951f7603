"""JSON Schemas of the API's serializers, for the arguments and results of tools."""

from functools import cache
from typing import Any

from rest_framework import serializers

Schema = dict[str, Any]

_TYPES: tuple[tuple[type[serializers.Field[Any, Any, Any, Any]], str], ...] = (
    (serializers.BooleanField, "boolean"),
    (serializers.IntegerField, "integer"),
    (serializers.FloatField, "number"),
    (serializers.JSONField, "object"),
)
_LIMITS = {"max_length": "maxLength", "max_value": "maximum", "min_value": "minimum"}


@cache
def of(form: type[serializers.Serializer[Any]]) -> Schema:
    """The schema of an object with the fields of a serializer."""
    return _object(form())


def extended(form: type[serializers.Serializer[Any]], required: tuple[str, ...] = (), **more: Schema) -> Schema:
    """The same, with more properties. `required` are names of these."""
    found = of(form)
    return an_object(*required, *found["required"], **more, **found["properties"])


def an_object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _object(form: Any) -> Schema:
    fields = {name: field for name, field in form.fields.items() if not field.write_only}
    required = [name for name, field in fields.items() if field.required or field.read_only]
    return an_object(*required, **{name: _field(field) for name, field in fields.items()})


def _field(field: Any) -> Schema:
    found = _plain(field)
    if field.allow_null:
        found = {**found, "type": [found["type"], "null"]}
        found |= {"enum": [*found["enum"], None]} if "enum" in found else {}
    return found | ({"description": str(field.help_text)} if field.help_text else {})


def _plain(field: Any) -> Schema:
    if isinstance(field, serializers.ListSerializer | serializers.ListField):
        return {"type": "array", "items": _field(field.child)}
    if isinstance(field, serializers.BaseSerializer):
        return _object(field)
    found: Schema = {"type": next((name for kind, name in _TYPES if isinstance(field, kind)), "string")}
    if isinstance(field, serializers.ChoiceField):
        found["enum"] = list(field.choices)
    if isinstance(field, serializers.DateTimeField):
        found["format"] = "date-time"
    limits = {name: getattr(field, own, None) for own, name in _LIMITS.items()}
    return found | {name: limit for name, limit in limits.items() if limit is not None}
