"""Closes a model for all processes while it does not answer, so that an outage does not fail every session.

The state is one row for each provider and one for each of its models. After two failures in a row, by any caller,
nobody calls that model for 15 seconds; the pause doubles up to 5 minutes. After each pause one caller tries, and the
others wait for the result. A server's `Retry-After` also holds for everybody who uses that model. A provider is closed
as a whole when it cannot be reached, or when two of its models fail: one model that is slow, or over its quota, says
nothing about the others. Any response opens it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from refinement.models import Provider

FAILURES = 2  # in a row, after which nobody calls
FIRST, LONGEST = timedelta(seconds=15), timedelta(minutes=5)
TOO_LONG = 86_400.0  # seconds, more than any call has

log = structlog.get_logger("palimpsest.models")


def of(model: str) -> str:
    """The provider of a model, as an agent's settings name it."""
    return model.partition("/")[0][:20]


def shut() -> dict[str, datetime]:
    """The providers and models that are closed now, by name, and until when."""
    rows = Provider.objects.filter(_is_shut()).order_by("name")
    return {row.name: row.shut_until for row in rows if row.shut_until is not None}


def doubted() -> list[str]:
    """The names of the providers and models whose last calls failed, or that are closed now."""
    rows = Provider.objects.filter(Q(failures__gte=FAILURES) | _is_shut())
    return sorted(rows.values_list("name", flat=True))


def _is_shut() -> Q:
    now = timezone.now()
    return Q(shut_until__gt=now, shut_until__lte=now + LONGEST)


def is_doubted(model: str) -> bool:
    """Whether its last calls failed, so that a session would probably fail, too."""
    return Provider.objects.filter(name__in=[of(model), model], failures__gte=FAILURES).exists()


class Availability:
    """Whether one model can be called now. Every attempt of every call asks for it, and reports its result."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.names = (of(model), model)
        self._failed_before = False
        self._own_failures = 0  # in a row

    def wait(self) -> float:
        """The seconds after which to ask again; 0 allows the call. After a pause, only one of all callers gets 0."""
        now = timezone.now()
        rows = list(Provider.objects.filter(name__in=self.names))
        self._failed_before = any(row.failures for row in rows)
        failing = [row for row in rows if row.failures >= FAILURES]
        if failing and self._own_failures > FAILURES:
            return TOO_LONG  # the cause may be this caller's request: let others try
        if until := max(filter(None, (_shut_until(row, now) for row in rows)), default=None):
            return (until - now).total_seconds()
        return 0 if _claimed(failing, now) else self.wait()

    def answered(self) -> None:
        """The server answered, with success or an error of the request."""
        self._own_failures = 0
        if self._failed_before:
            rows = Provider.objects.filter(name__in=self.names)
            if rows.filter(failures__gte=FAILURES).exists():
                log.info("a provider of models answers again", provider=of(self.model))
            rows.update(failures=0, shut_until=None, failed_with="")

    def failed(self, retry_after: float | None = None, *, is_unreachable: bool = False) -> None:
        """The server did not answer, or asked for a pause of so many seconds. `is_unreachable`: no response at all."""
        self._own_failures += 1
        with transaction.atomic():
            for name in self.names:
                Provider.objects.get_or_create(name=name)
            provider, model = Provider.objects.select_for_update().filter(name__in=self.names).order_by("pk")
            fails_as_a_whole = provider.failed_with not in ("", self.model) or not provider.failures
            self._record(model, counts=True, retry_after=retry_after)
            self._record(provider, counts=is_unreachable or fails_as_a_whole)

    def _record(self, row: Provider, *, counts: bool, retry_after: float | None = None) -> None:
        now = timezone.now()
        row.shut_until = _shut_until(row, now)
        if counts and row.shut_until is None:  # else the failure is known
            row.failures += 1
            row.failed_with = self.model
            if row.failures >= FAILURES:
                row.shut_until = now + _pause(row.failures)
                log.warning("a provider of models does not answer", provider=of(row.name), failures=row.failures)
        if retry_after:
            until = now + min(timedelta(seconds=retry_after), LONGEST)
            row.shut_until = max(row.shut_until or until, until)
        row.save()


def _claimed(failing: Iterable[Provider], now: datetime) -> bool:
    """Whether this caller gets the one attempt after a pause: by compare-and-set of each row."""
    for row in sorted(failing, key=lambda row: row.name):
        unchanged = Provider.objects.filter(name=row.name, failures=row.failures, shut_until=row.shut_until)
        if not unchanged.update(failures=row.failures + 1, shut_until=now + _pause(row.failures + 1)):
            return False
    return True


def _shut_until(row: Provider, now: datetime) -> datetime | None:
    """None if it may be called. A time that is too far ahead was set by a wrong clock."""
    is_shut = row.shut_until is not None and now < row.shut_until <= now + LONGEST
    return row.shut_until if is_shut else None


def _pause(failures: int) -> timedelta:
    """How long nobody calls after so many failures in a row."""
    return min(FIRST * (1 << min(max(failures - FAILURES, 0), 10)), LONGEST)
