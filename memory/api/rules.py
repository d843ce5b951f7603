"""API of an agent's memory rules and of its vault. The API cannot change the rules: only a person can."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.agents import rule_changes
from memory.api.base.bodies import NumberOrNull, Page
from memory.api.base.views import AgentView
from memory.errors import PersonRequired
from memory.models import Vault
from memory.vault import comparing, writer
from memory.vault.comparing import Compared


class RulesOut(serializers.Serializer[Any]):
    """The whole settings document. Unknown keys are kept."""

    version = serializers.CharField(help_text="version of the rules")
    memory_rules = serializers.DictField(help_text="switches, categories and limits; unknown keys are kept")
    storage = serializers.DictField(help_text="`base_path` of the vault; free-form: unknown keys are kept and returned")


class Rules(AgentView):
    @property
    def allowed_methods(self) -> list[str]:
        """The methods in the header `Allow`. PATCH is missing, because every PATCH is refused."""
        return ["GET", "HEAD"]

    @extend_schema(operation_id="rules_read", responses=RulesOut)
    def get(self, request: Request) -> Response:
        """Read the memory rules: what is stored, and where."""
        return Response(rule_changes.whole(self.agent))

    @extend_schema(exclude=True)
    def patch(self, request: Request) -> Response:
        """Refuse every request. Only a person can change memory rules, in the admin or with a command."""
        raise PersonRequired


class DifferenceOut(serializers.Serializer[Any]):
    id = NumberOrNull(
        source="number",
        allow_null=True,
        help_text="number of the memory; null for an index page, or if the memory is unknown",
    )
    kind = serializers.ChoiceField(comparing.KINDS, help_text="what differs; `edited`: somebody changed the file")
    path = serializers.CharField(allow_blank=True, help_text="path below the vault's folder; empty if there is no file")


class VaultOut(serializers.Serializer[Any]):
    """A folder with a file for each memory."""

    path = serializers.CharField(allow_blank=True, help_text="folder on the service's machine; empty if no vault")
    is_there = serializers.BooleanField(help_text="whether the folder exists")
    is_behind = serializers.BooleanField(help_text="whether files are missing or out of date; the service retries")
    fault = serializers.CharField(allow_blank=True, help_text="why the last write failed; empty if it succeeded")
    differences = DifferenceOut(many=True, help_text="current differences between the files and the silo")
    unknown = serializers.IntegerField(allow_null=True, help_text="number of foreign files; null before the last page")
    next = serializers.CharField(allow_null=True)


class VaultQuery(Page):
    """A page has up to `limit` memories after number `cursor`. The last page also has the other files of the folder."""


class OneVault(AgentView):
    @extend_schema(operation_id="vault_read", parameters=[VaultQuery], responses=VaultOut)
    def get(self, request: Request) -> Response:
        """Compare the vault's files with the silo, page by page. Nothing is changed or locked."""
        query, has_vault = self.query(VaultQuery), bool(self.agent.vault_path)
        found = comparing.page(self.agent, after=query["cursor"], limit=query["limit"]) if has_vault else Compared()
        is_last = found.after is None
        state = {
            "path": self.agent.vault_path,
            "is_there": writer.is_there(self.agent),
            "is_behind": has_vault and writer.is_behind(self.agent),
            "fault": Vault.objects.filter(agent_id=self.agent.pk).values_list("fault", flat=True).first() or "",
            "differences": DifferenceOut(found.differences, many=True).data,
            "unknown": found.unknown if is_last else None,
            "next": None if is_last else str(found.after),
        }
        return Response(state)
