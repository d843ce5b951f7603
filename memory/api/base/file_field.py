"""Where the files of memories are, as an answer tells it (seed 004: "Report successful file creation with path")."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

_TOLD = (
    "path of its file in the vault, on the service's machine, once it was read back; null: there is no vault, or it "
    "could not be written, which is tried again"
)


class FileField(serializers.CharField):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, "help_text": _TOLD, **options})
