"""Who calls: the holder of an agent's key, or of a tenant's. No session, no cookie, no password.

A view says which of the two it is for; one that says neither is for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from audit.trail import Actor
from memory.access.authentication import agent_key, is_tenants, tenant_key
from memory.errors import KeyRejected
from memory.models import AgentKey, TenantKey

CHALLENGE = 'Bearer realm="palimpsest"'  # beside every 401 (RFC 6750, 3)
MAX_HEADER = 200  # characters; a key has 60


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a valid key."""

    key: AgentKey | TenantKey
    is_authenticated: bool = True

    @property
    def actor(self) -> Actor:
        return Actor.agent(self.key.prefix) if isinstance(self.key, AgentKey) else Actor.operator(self.key.prefix)

    @property
    def pk(self) -> str:
        """What limits are counted by."""
        return self.key.prefix


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer KEY`. Without the header the caller is nobody; with a bad one the answer is 401."""

    def authenticate(self, request: Request) -> tuple[Caller, AgentKey | TenantKey] | None:
        scheme, _, key = str(request.META.get("HTTP_AUTHORIZATION", ""))[:MAX_HEADER].partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
        try:
            row = tenant_key(key) if is_tenants(key) else agent_key(key)
        except KeyRejected as rejected:
            raise AuthenticationFailed(str(rejected), rejected.code) from None
        return Caller(row), row

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class Nobody(BasePermission):
    """What holds where a view forgot to say whom it is for."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return False


class AgentSide(BasePermission):
    message = "This is for an agent's key."

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, AgentKey)


class TenantSide(BasePermission):
    message = "This is for a tenant's key."

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, TenantKey)


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema tells of it."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An agent's key (`pal_…`), which opens one silo, or a tenant's (`palt_…`), which opens none",
        }
