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
    """The settings document, whole; unknown keys are those of whoever put them there."""

    version = serializers.CharField(help_text="of the rules")
    memory_rules = serializers.DictField(
        help_text="switches, categories, limits; `enabled` is the master switch; free-form, for it keeps unknown keys"
    )
    storage = serializers.DictField(help_text="`base_path` of the vault; free-form, for it keeps unknown keys")


class Rules(AgentView):
    @extend_schema(operation_id="rules_read", responses=RulesOut)
    def get(self, request: Request) -> Response:
        """What the agent may remember, and where it is kept."""
        return Response(rule_changes.whole(self.agent))

    @extend_schema(exclude=True)
    def patch(self, request: Request) -> Response:
        """Refused, always: no key turns memory on or off. A person does, in the admin or by a command."""
        raise PersonsOnly
