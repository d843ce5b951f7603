"""Results of requests with an Idempotency-Key. A repeated request gets the first result."""

from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils import timezone
from rest_framework import status
from rest_framework.exceptions import APIException

from memory.models import Agent, Creation

KEPT = timedelta(days=1)  # how long an Idempotency-Key is remembered
MOST_EXPIRED = 20  # rows that one request deletes, because another writer may wait


class KeyReused(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_code = "idempotency_key_reused"
    default_detail = "This Idempotency-Key was used with another body. Use a new key."


class Kept(NamedTuple):
    """The stored result of requests with the same Idempotency-Key. It is stored for a day. `key` and `fingerprint` are
    keyed digests of the Idempotency-Key and of the request."""

    key: bytes
    fingerprint: bytes

    def find(self, agent: Agent) -> list[Any] | None:
        """Raises KeyReused."""
        now = timezone.now()
        before = Creation.objects.filter(agent=agent, key=self.key, at__range=(now - KEPT, now + KEPT)).first()
        if before is not None and bytes(before.fingerprint) != self.fingerprint:
            raise KeyReused
        return None if before is None else list(before.numbers)

    def store(self, agent: Agent, made: list[Any]) -> None:
        """Store a result in the caller's transaction, and delete old results."""
        now = timezone.now()
        # Those of all agents, a few at a time. A wrong clock may have set a later time.
        rows = Creation.objects.select_for_update(skip_locked=True)  # another tenant may be deleting them
        expired = rows.filter(Q(at__lt=now - KEPT) | Q(at__gt=now + KEPT))
        Creation.objects.filter(pk__in=list(expired.values_list("pk", flat=True)[:MOST_EXPIRED])).delete()
        new, unique = {"fingerprint": self.fingerprint, "numbers": made, "at": now}, ["agent", "key"]
        row = Creation(agent=agent, key=self.key, **new)  # the key may have an expired row
        Creation.objects.bulk_create([row], update_conflicts=True, update_fields=new, unique_fields=unique)
