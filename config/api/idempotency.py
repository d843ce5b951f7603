"""Creating once, however often it is asked for: `Idempotency-Key`.

Kept for a day: a keyed digest of the key and of the body, and the numbers of what was made; never a body. The row is
written in the transaction that creates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from memory import editing
from memory.errors import Invalid
from memory.models import Agent, Creation
from memory.silo.silo import Silo

KEPT = timedelta(days=1)
MAX_KEY = 200  # characters

PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="any text of up to 200 characters; a repeat within a day makes nothing new",
)


class KeyReused(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_code = "idempotency_key_reused"
    default_detail = "This Idempotency-Key was used for another body."


def once(request: Request, agent: Agent, make: Callable[[], list[int]]) -> list[int]:
    """The numbers of what `make` made, now or when this key was first used. Raises KeyReused, Invalid."""
    key = str(request.META.get("HTTP_IDEMPOTENCY_KEY", ""))
    if not key:
        return make()
    if len(key) > MAX_KEY:
        raise Invalid("Idempotency-Key", f"is longer than {MAX_KEY} characters")
    silo = Silo.for_agent(agent)
    digest = silo.digest(f"idempotency/{key}")
    fingerprint = silo.digest(f"{request.path}/{json.dumps(request.data, sort_keys=True)}")
    with editing.locked(agent):
        now = timezone.now()
        Creation.objects.filter(at__lt=now - KEPT).delete()  # whoever's: an agent that asks no more has none kept
        before = Creation.objects.filter(agent=agent, key=digest).first()
        if before is not None:
            if bytes(before.fingerprint) != fingerprint:
                raise KeyReused
            return list(before.numbers)
        numbers = make()
        Creation.objects.create(agent=agent, key=digest, fingerprint=fingerprint, numbers=numbers, at=now)
        return numbers
