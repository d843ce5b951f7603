"""Who calls: the holder of an agent's key or of a tenant's. There is no session, no cookie and no password.

A view says which of the two it is for. A view that says neither is for nobody.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.cache import cache
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from memory.access import request_key
from memory.access.authentication import either_key
from memory.models import AgentKey, TenantKey

CHALLENGE = 'Bearer realm="palimpsest"'  # with every 401 (RFC 6750, 3)
MAX_HEADER = 200  # characters; a key has 60
WINDOW = 60  # seconds


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer KEY`. The key's row is `request.user` and `request.auth`. Raises KeyRejected."""

    def authenticate(self, request: Request) -> tuple[AgentKey | TenantKey, AgentKey | TenantKey] | None:
        scheme, _, key = str(request.META.get("HTTP_AUTHORIZATION", ""))[:MAX_HEADER].partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
        row = either_key(key)
        request_key.note(row)
        return row, row

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class Nobody(BasePermission):
    """The default, for a view that does not say whom it is for."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return False


class PerKey(BaseThrottle):
    """API_RATE requests a minute for each key, in fixed windows, with headers that say how many are left.

    The count is in the cache. If the cache is local to a process, each process counts for itself.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        now = time.time()
        window = int(now // WINDOW)
        place = f"api-rate/{view.key.prefix}/{window}"
        cache.add(place, 0, timeout=2 * WINDOW)
        try:
            used = cache.incr(place)
        except ValueError:  # the cache has dropped it
            used = 1
        self._wait = (window + 1) * WINDOW - now
        limit = settings.API_RATE
        view.headers |= {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(0, limit - used)),
            "X-RateLimit-Reset": str((window + 1) * WINDOW),
        }
        return used <= limit

    def wait(self) -> float:
        """Seconds until the next window."""
        return self._wait


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the authentication in the schema."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An agent's key (`pal_…`), which opens one silo, or a tenant's (`palt_…`), which opens none",
        }
