"""An agent's memory rules over the API: read, and changed by nobody (seed 004: a person alone changes them)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.agents import rule_changes
from memory.api.base.views import AgentView
from memory.errors import PersonsOnly


class RulesOut(serializers.Serializer[Any]):
    """The whole settings document. Unknown keys are kept."""

    version = serializers.CharField(help_text="version of the rules")
    memory_rules = serializers.DictField(
        help_text="switches, categories and limits; free-form, because unknown keys are kept"
    )
    storage = serializers.DictField(help_text="`base_path` of the vault; free-form, because unknown keys are kept")


class Rules(AgentView):
    @property
    def allowed_methods(self) -> list[str]:
        """The methods in `Allow`: PATCH is always refused."""
        return ["GET", "HEAD"]

    @extend_schema(operation_id="rules_read", responses=RulesOut)
    def get(self, request: Request) -> Response:
        """Read what the agent may remember and where it is stored."""
        return Response(rule_changes.whole(self.agent))

    @extend_schema(exclude=True)
    def patch(self, request: Request) -> Response:
        """Refused, always: no key turns memory on or off. A person does, in the admin or by a command."""
        raise PersonsOnly
