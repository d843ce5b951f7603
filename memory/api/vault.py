"""An agent's vault over the API: whether its files say what the silo says, and what a person wrote into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Page
from memory.api.base.file_field import FileField
from memory.api.base.views import AgentView
from memory.errors import FileFault, MemoryDisabled, NotFound, VaultBusy
from memory.models import Vault
from memory.vault import comparing, repair, writer
from memory.vault.comparing import Compared

log = structlog.get_logger("palimpsest.api")
T = TypeVar("T")


class VaultUnusable(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = FileFault.code
    default_detail = "The agent's vault cannot be read or written; the service's log says why."


class DifferenceOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True, help_text="of the memory; null: an index, or nobody knows of which")
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


class TakenInOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="of the memory")
    entry = serializers.IntegerField(allow_null=True, help_text="of the trail; null: the memory said so already")
    file = FileField()


class LeftOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="of the memory")
    kept = serializers.CharField(help_text="where what was written is now, below the vault's folder")
    file = FileField()


class VaultView(AgentView):
    def with_vault(self, do: Callable[[], T]) -> T:
        """Raises NotFound where the agent has none, VaultUnusable."""
        if not self.agent.vault_path:
            raise NotFound("This agent has no vault.")
        if not self.agent.memory_enabled:  # names of files have words of memories in them
            raise MemoryDisabled
        try:
            return do()
        except VaultBusy:  # a 409: whoever holds it writes there just now
            raise
        except FileFault as fault:
            log.error("vault not used", agent=self.agent.pk, code=fault.code, reason=fault.reason)
            raise VaultUnusable from None


class OneVault(VaultView):
    @extend_schema(operation_id="vault_read", parameters=[VaultQuery], responses=VaultOut)
    def get(self, request: Request) -> Response:
        """Compare files of the vault with the silo, a page of memories at a time; nothing is changed, nor held."""
        asked = self.asked(VaultQuery)
        found = Compared()
        if self.agent.vault_path:
            found = self.with_vault(lambda: comparing.page(self.agent, after=asked["cursor"], limit=asked["limit"]))
        state = Vault.objects.filter(agent_id=self.agent.pk).first()
        is_last = found.after is None
        return Response(
            {
                "path": self.agent.vault_path,
                "is_there": writer.is_there(self.agent),
                "is_behind": bool(self.agent.vault_path) and writer.is_behind(self.agent),
                "fault": state.fault if state else "",
                "differences": [
                    {"id": each.number or None, "kind": each.kind, "path": each.path} for each in found.differences
                ],
                "unknown": found.unknown if is_last else None,
                "next": None if is_last else str(found.after),
            }
        )


class TakeIn(VaultView):
    @extend_schema(operation_id="vault_file_take_in", request=None, responses=TakenInOut)
    def post(self, request: Request, number: int) -> Response:
        """Have the memory say what a person wrote into its file: an edit of the agent's own, in its trail."""
        edited = self.with_vault(lambda: repair.take_in(self.agent, number, self.actor))
        return Response({"id": number, "entry": edited.seq, "file": writer.file_of(self.agent, number)})


class Leave(VaultView):
    @extend_schema(operation_id="vault_file_leave", request=None, responses=LeftOut)
    def post(self, request: Request, number: int) -> Response:
        """Keep the memory as it is: the file a person wrote to is put aside, and written anew."""
        kept = self.with_vault(lambda: repair.leave(self.agent, number, self.actor))
        return Response({"id": number, "kept": kept, "file": writer.file_of(self.agent, number)})
