"""API of an agent's keys. An exchange of a key claims the silo."""

import json
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.access.authentication import prefix_of, require_not_suspended
from memory.agents import lifecycle
from memory.api.base.bodies import OPTIONAL_TEXT, Body, Boolean, Choice, List, Numbers, Text
from memory.api.base.views import MAX_KEY, AgentView, ExchangeAuthentication
from memory.consent import claims
from memory.errors import Invalid, KeyRejected

LEAST_KEY = 16  # characters of the Idempotency-Key of an exchange
_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description=f"for an exchange: a secret random text of {LEAST_KEY} to {MAX_KEY} characters. If you repeat the "
    "request within a day, before the new key is used, you get the same response",
)


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
        if not isinstance(request.auth, str):
            super().check_permissions(request)

    @extend_schema(operation_id="agent_key_issue", request=KeyIn, responses={201: ClaimOut}, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Issue another key to this agent. `exchange` claims the silo: it revokes every earlier key and every grant,
        declines open requests, and clears the settings that decide who can read, unless `keep` names them."""
        payload = self.payload(KeyIn)
        if not payload.pop("exchange"):
            return Response(key_json(self._issue(payload["label"])), status.HTTP_201_CREATED)
        claim = self._claim(payload)
        result = {"recovery_code": claim.recovery_code, "cleared": claim.cleared, "ended": claim.ended}
        return Response(key_json(claim.key) | result, status.HTTP_201_CREATED)

    def _issue(self, label: str) -> str:
        if isinstance(self.request.auth, str):
            raise KeyRejected('The key is not valid. A recovery code can only be exchanged: {"exchange": true}.')
        require_not_suspended(self.agent)
        return lifecycle.issue_key(self.agent, self.actor, label=label)

    def _claim(self, payload: dict[str, Any]) -> claims.Claim:
        """Claim the silo, or return the result of the same request again."""
        seed, code = self._seed(), self.request.auth
        try:
            if isinstance(code, str):
                return claims.recover(code, **payload, seed=seed)
            return claims.exchange(self.key, self.actor, **payload, seed=seed)
        except KeyRejected:
            before = claims.repeated(seed) if seed else None
            if before is None:
                raise
            return before

    def _seed(self) -> str:
        """The secrets and the body of this request as text, or "" if the request has no Idempotency-Key."""
        headers = self.request.headers
        chosen = headers.get("Idempotency-Key", "")
        if not chosen:
            return ""
        if not LEAST_KEY <= len(chosen) <= MAX_KEY:
            problem = f"must have {LEAST_KEY} to {MAX_KEY} characters in an exchange: use a secret random text"
            raise Invalid("Idempotency-Key", problem)
        return json.dumps([headers["Authorization"], chosen, self.request.data], sort_keys=True)
