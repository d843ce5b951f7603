"""API of an agent's keys. An exchange of a key claims the silo."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.access.authentication import prefix_of, require_not_suspended
from memory.agents import lifecycle
from memory.api.base.bodies import OPTIONAL_TEXT, Body, Boolean, Choice, List, Numbers, Text
from memory.api.base.views import AgentView, ExchangeAuthentication
from memory.consent import claims


class LabelIn(Body):
    label = Text(max_length=100, **OPTIONAL_TEXT)  # type: ignore[assignment]  # a field's name, off the class


class KeyIn(LabelIn):
    exchange = Boolean(default=False, help_text="revoke every earlier key, also this request's, and claim the silo")
    keep = List(child=Choice(claims.CLEARED), default=[], max_length=20, help_text="settings that an exchange keeps")


class KeyOut(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="shown only once")
    prefix = serializers.CharField(help_text="name of the key, to revoke it by")


class ClaimOut(KeyOut):
    """The last three fields are only in the response to an exchange."""

    recovery_code = serializers.CharField(required=False, help_text="shown only once; exchange it if all keys are lost")
    cleared = serializers.ListField(child=serializers.CharField(), required=False, help_text="cleared settings")
    ended = Numbers(required=False, help_text="numbers of the requests and grants that ended")


def key_json(key: str) -> dict[str, Any]:
    return {"key": key, "prefix": prefix_of(key)}


class Keys(AgentView):
    authentication_classes = (ExchangeAuthentication,)

    def check_permissions(self, request: Request) -> None:
        if not isinstance(request.auth, str):  # a recovery code
            super().check_permissions(request)

    @extend_schema(operation_id="agent_key_issue", request=KeyIn, responses={201: ClaimOut})
    def post(self, request: Request) -> Response:
        """Issue another key to this agent. `exchange` claims the silo: it revokes every earlier key and every grant,
        declines open requests, and clears the settings that decide who can read, unless `keep` names them."""
        payload = self.payload(KeyIn)
        code = request.auth if isinstance(request.auth, str) else ""
        if payload.pop("exchange"):
            claim = claims.recover(code, **payload) if code else claims.exchange(self.key, self.actor, **payload)
        elif code:
            self.permission_denied(request, 'A recovery code can only be exchanged: {"exchange": true}.')
        else:
            require_not_suspended(self.agent)
            key = lifecycle.issue_key(self.agent, self.actor, label=payload["label"])
            return Response(key_json(key), status.HTTP_201_CREATED)
        result = {"recovery_code": claim.recovery_code, "cleared": claim.cleared, "ended": claim.ended}
        return Response(key_json(claim.key) | result, status.HTTP_201_CREATED)
