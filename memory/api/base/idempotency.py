"""Creating once, however often it is asked for: `Idempotency-Key`.

Kept for a day: a keyed digest of the key and of the body, and the numbers of what was made; never a body. The row is
written in the transaction that creates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from memory.errors import Invalid
from memory.models import Agent, Creation
from memory.silo.silo import Silo
from memory.writing import edits

T = TypeVar("T")
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
    return once_ready(request, agent, lambda: None, lambda _: make())


def once_ready(request: Request, agent: Agent, ready: Callable[[], T], make: Callable[[T], list[int]]) -> list[int]:
    """The same, of what `ready` makes ready before the agent is locked: what takes long, and no repeat needs."""
    key = str(request.META.get("HTTP_IDEMPOTENCY_KEY", ""))
    if not key:
        return make(ready())
    if len(key) > MAX_KEY:
        raise Invalid("Idempotency-Key", f"is longer than {MAX_KEY} characters")
    silo = Silo.for_agent(agent)
    digest = silo.digest(f"idempotency/{key}")
    fingerprint = silo.digest(f"{request.path}/{json.dumps(request.data, sort_keys=True)}")
    made = _made_before(agent, digest, fingerprint)
    if made is not None:
        return made
    what = ready()
    with edits.locked(agent):
        Creation.objects.filter(at__lt=timezone.now() - KEPT).delete()  # whoever's: who asks no more has none kept
        made = _made_before(agent, digest, fingerprint)
        if made is None:
            made = make(what)
            now = timezone.now()
            Creation.objects.create(agent=agent, key=digest, fingerprint=fingerprint, numbers=made, at=now)
        return made


def _made_before(agent: Agent, digest: bytes, fingerprint: bytes) -> list[int] | None:
    before = Creation.objects.filter(agent=agent, key=digest, at__gte=timezone.now() - KEPT).first()
    if before is not None and bytes(before.fingerprint) != fingerprint:
        raise KeyReused
    return None if before is None else list(before.numbers)
