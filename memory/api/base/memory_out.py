"""A memory as the API returns it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from memory.models import Kind
from memory.policy.categories import SCOPES
from memory.search.reading import Read
from memory.transfer.exporting import record

CATEGORIES = sorted(SCOPES)


class MemoryOut(serializers.Serializer[Any]):
    """A memory."""

    id = serializers.IntegerField(help_text="its number within the agent")
    kind = serializers.ChoiceField(Kind.values)
    category = serializers.ChoiceField(CATEGORIES)
    scope = serializers.CharField()
    project = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    origin = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    tokens = serializers.IntegerField()
    constitutional = serializers.BooleanField()
    content = serializers.CharField()
    discarded_at = serializers.DateTimeField(allow_null=True)
    superseded_by = serializers.IntegerField(allow_null=True)
    version = serializers.IntegerField(help_text="the number of the audit entry that last touched it; its ETag")


def shown(read: Read) -> dict[str, Any]:
    return record(read.memory, read.opened, with_discarded=True) | {"version": read.memory.version}
