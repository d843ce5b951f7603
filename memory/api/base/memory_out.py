"""A memory as the API returns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from memory.models import Agent, Kind
from memory.policy.categories import SCOPES
from memory.search.reading import Read
from memory.transfer.exporting import record
from memory.vault import writer

CATEGORIES = sorted(SCOPES)


class MemoryOut(serializers.Serializer[Any]):
    """A memory."""

    id = serializers.IntegerField(help_text="number within the agent")
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
    version = serializers.IntegerField(help_text="number of the audit entry that last changed it; also its ETag")


class WithFile(serializers.Serializer[Any]):
    file = serializers.CharField(allow_null=True, help_text="path of its file in the vault, on the service's machine")
    no_file = serializers.CharField(allow_null=True, help_text="why there is no file, and what to do")


def as_json(read: Read) -> dict[str, Any]:
    return record(read.memory, read.opened, with_discarded=True) | {"version": read.memory.version}


def with_files(agent: Agent, numbers: Sequence[int]) -> list[dict[str, str | None]]:
    """The fields of `WithFile`, for each of these memories."""
    files = writer.files_of(agent, numbers)
    why = writer.why_no_file(agent) if len(files) < len(set(numbers)) else None
    return [{"file": files.get(number), "no_file": None if number in files else why} for number in numbers]
