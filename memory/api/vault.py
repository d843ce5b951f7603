"""An agent's vault over the API: whether its files say what the silo says."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import NumberOrNull, Page
from memory.api.base.views import AgentView
from memory.models import Vault
from memory.vault import comparing, writer
from memory.vault.comparing import Compared


class DifferenceOut(serializers.Serializer[Any]):
    id = NumberOrNull(
        source="number", allow_null=True, help_text="of the memory; null: an index, or nobody knows of which"
    )
    kind = serializers.ChoiceField(
        comparing.KINDS, help_text="what is not as it should be; `edited`: somebody wrote to it"
    )
    path = serializers.CharField(allow_blank=True, help_text="below the vault's folder; empty: there is no file yet")


class VaultOut(serializers.Serializer[Any]):
    """A folder with a file for each memory, for whoever can read it."""

    path = serializers.CharField(allow_blank=True, help_text="its folder, on the service's machine; empty: none")
    is_there = serializers.BooleanField(help_text="whether the folder is")
    is_behind = serializers.BooleanField(help_text="its silo; it is tried again by itself")
    fault = serializers.CharField(allow_blank=True, help_text="why, if it could not be written")
    differences = DifferenceOut(many=True, help_text="between files and silo, looked for just now")
    unknown = serializers.IntegerField(allow_null=True, help_text="files of others; null before the last page")
    next = serializers.CharField(allow_null=True)


class VaultQuery(Page):
    """So many memories behind the one of number `cursor`; with the last of them, what else is in the folder."""


class OneVault(AgentView):
    @extend_schema(operation_id="vault_read", parameters=[VaultQuery], responses=VaultOut)
    def get(self, request: Request) -> Response:
        """Compare files of the vault with the silo, a page of memories at a time; nothing is changed, nor held."""
        asked, has_vault = self.asked(VaultQuery), bool(self.agent.vault_path)
        found = Compared()
        if has_vault:
            found = comparing.page(self.agent, after=asked["cursor"], limit=asked["limit"])
        is_last = found.after is None
        return Response(
            {
                "path": self.agent.vault_path,
                "is_there": writer.is_there(self.agent),
                "is_behind": has_vault and writer.is_behind(self.agent),
                "fault": Vault.objects.filter(agent_id=self.agent.pk).values_list("fault", flat=True).first() or "",
                "differences": DifferenceOut(found.differences, many=True).data,
                "unknown": found.unknown if is_last else None,
                "next": None if is_last else str(found.after),
            }
        )
