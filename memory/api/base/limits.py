"""How often a key may ask: so many requests a minute, counted in the shared cache, told in every answer's headers."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

WINDOW = 60  # seconds


class PerKey(BaseThrottle):
    """A fixed window for each key. Where the cache is this process's own, each process counts for itself."""

    def allow_request(self, request: Request, view: Any) -> bool:
        if request.auth is None:  # refused anyway
            return True
        now = time.time()
        window = int(now // WINDOW)
        place = f"api-rate/{request.user.pk}/{window}"
        cache.add(place, 0, timeout=2 * WINDOW)
        try:
            used = cache.incr(place)
        except ValueError:  # dropped from the cache meanwhile
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
