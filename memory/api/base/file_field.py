"""The file of a memory in a response: its path, or why there is none."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from memory.models import Agent
from memory.vault import writer


class WithFile(serializers.Serializer[Any]):
    file = serializers.CharField(
        allow_null=True, help_text="path of its file in the vault, on the service's machine, after it was read back"
    )
    no_file = serializers.CharField(allow_null=True, help_text="why there is no file, and what to do")


def with_files(agent: Agent, numbers: list[int]) -> list[dict[str, str | None]]:
    """Both fields, for each of these memories."""
    files = writer.files_of(agent, numbers)
    why = writer.why_no_file(agent) if len(files) < len(set(numbers)) else None
    return [{"file": files.get(number), "no_file": None if number in files else why} for number in numbers]
