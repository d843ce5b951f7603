"""`Idempotency-Key`: a repeated request creates nothing new.

A row keeps, for a day, keyed digests of the key and of the body, and the numbers of what was made, but no body. It is
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

from memory.errors import Invalid
from memory.models import Agent, Creation
from memory.silo.silo import Silo
from memory.writing import edits

KEPT = timedelta(days=1)
MAX_KEY = 200  # characters

PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="any text of up to 200 characters; repeating the request within a day creates nothing new",
)


class KeyReused(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_code = "idempotency_key_reused"
    default_detail = "This Idempotency-Key was used for another body."


def once(
    request: Request, agent: Agent, make: Callable[[Agent], list[int]], *, prepare: Callable[[], object] = lambda: None
) -> list[int]:
    """The numbers of what `make` made for the agent, now or when this key was first used.

    `prepare` does the slow part before the agent is locked, and not for a repeat. Raises KeyReused, Invalid.
    """
    key = request.headers.get("Idempotency-Key", "")
    if not key:
        return make(agent)
    if len(key) > MAX_KEY:
        raise Invalid("Idempotency-Key", f"is longer than {MAX_KEY} characters")
    silo = Silo.for_agent(agent)
    digest = silo.digest(f"idempotency/{key}")
    fingerprint = silo.digest(f"{request.path}/{json.dumps(request.data, sort_keys=True)}")
    made = _made_before(agent, digest, fingerprint)
    if made is not None:
        return made
    prepare()
    with edits.locked(agent) as row:
        Creation.objects.filter(at__lt=timezone.now() - KEPT).delete()  # of every agent: some never call again
        made = _made_before(agent, digest, fingerprint)
        if made is None:
            made = make(row)
            now = timezone.now()
            Creation.objects.create(agent=agent, key=digest, fingerprint=fingerprint, numbers=made, at=now)
        return made


def _made_before(agent: Agent, digest: bytes, fingerprint: bytes) -> list[int] | None:
    before = Creation.objects.filter(agent=agent, key=digest, at__gte=timezone.now() - KEPT).first()
    if before is not None and bytes(before.fingerprint) != fingerprint:
        raise KeyReused
    return None if before is None else list(before.numbers)
