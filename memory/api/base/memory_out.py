"""A memory in a response of the API. `Read.to_dict` returns its fields."""

from typing import Any

from rest_framework import serializers

from memory.models import Kind, Layer
from memory.policy.categories import SCOPES

CATEGORIES = sorted(SCOPES)


class MemoryOut(serializers.Serializer[Any]):
    """A memory."""

    id = serializers.IntegerField(help_text="number within the agent")
    kind = serializers.ChoiceField(Kind.values)
    layer = serializers.ChoiceField(Layer.values)
    category = serializers.ChoiceField(CATEGORIES)
    scope = serializers.CharField()
    project = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    origin = serializers.DateTimeField()
    origin_latest = serializers.DateTimeField(allow_null=True, help_text="of a merged memory: its latest origin date")
    created_at = serializers.DateTimeField()
    tokens = serializers.IntegerField()
    constitutional = serializers.BooleanField()
    content = serializers.CharField()
    discarded_at = serializers.DateTimeField(allow_null=True)
    path = serializers.CharField(allow_null=True, help_text="its path in a memory store; null for other memories")
    superseded_by = serializers.IntegerField(allow_null=True, help_text="the memory that replaced it")
    version = serializers.IntegerField(help_text="number of the last audit entry that changed it; the memory's ETag")


class WithFile(serializers.Serializer[Any]):
    file = serializers.CharField(allow_null=True, help_text="path of its file in the vault, on the service's machine")
    no_file = serializers.CharField(allow_null=True, help_text="why there is no file, and what to do")
