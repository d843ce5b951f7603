"""The breaker of models: what does not answer is left alone by everybody, instead of failing every session.

Shared by all processes through a row for each provider and one for each of its models. After two failures in a row,
whoever called, nobody calls that model for a while, that doubles from 15 seconds to 5 minutes; then one caller tries,
and the others wait for how it goes. What the server itself asks for (`Retry-After`) holds for everybody who uses that
model, too. A provider is left alone as a whole when it cannot be reached, or when two of its models fail: one that is
over its quota, or slow, says nothing of the others. An answer of any kind ends it.
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
NOT_ANY_MORE = 86_400.0  # seconds, beyond any call's time

log = structlog.get_logger("palimpsest.models")


def of(model: str) -> str:
    """The provider of a model, as it is written in an agent's settings."""
    return model.partition("/")[0][:20]


def shut() -> dict[str, datetime]:
    """The providers and models that nobody calls now, and until when, by name."""
    rows = Provider.objects.filter(_is_shut()).order_by("name")
    return {row.name: row.shut_until for row in rows if row.shut_until is not None}


def doubted() -> list[str]:
    """The providers and models that failed when they were last called, or that nobody calls now, by name."""
    rows = Provider.objects.filter(Q(failures__gte=FAILURES) | _is_shut())
    return sorted(rows.values_list("name", flat=True))


def _is_shut() -> Q:
    now = timezone.now()
    return Q(shut_until__gt=now, shut_until__lte=now + LONGEST)


def is_doubted(model: str) -> bool:
    """Whether it failed when it was last called, so that a session might be begun in vain."""
    return Provider.objects.filter(name__in=[of(model), model], failures__gte=FAILURES).exists()


class Gate:
    """What every call of a model passes, each attempt of it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.names = (of(model), model)
        self._failed_before = False
        self._failures = 0  # of this caller, in a row

    def wait(self) -> float:
        """Seconds after which to ask again, or 0: go ahead. Of all who ask once a pause is over, one may go."""
        now = timezone.now()
        rows = list(Provider.objects.filter(name__in=self.names))
        self._failed_before = any(row.failures for row in rows)
        doubted = [row for row in rows if row.failures >= FAILURES]
        if doubted and self._failures > FAILURES:
            return NOT_ANY_MORE  # it may be what this one asks: let others find out
        if until := max(filter(None, (_shut_until(row, now) for row in rows)), default=None):
            return (until - now).total_seconds()
        return 0 if _claimed(doubted, now) else self.wait()

    def answered(self) -> None:
        """It answered, whatever it said."""
        self._failures = 0
        if self._failed_before:
            rows = Provider.objects.filter(name__in=self.names)
            if rows.filter(failures__gte=FAILURES).exists():
                log.info("a provider of models answers again", provider=of(self.model))
            rows.update(failures=0, shut_until=None, failed_with="")

    def failed(self, asked: float | None = None, *, is_gone: bool = False) -> None:
        """It did not answer, or asked to be left alone for some seconds. `is_gone`: there is no server at all."""
        self._failures += 1
        with transaction.atomic():
            for name in self.names:
                Provider.objects.get_or_create(name=name)
            provider, model = Provider.objects.select_for_update().filter(name__in=self.names).order_by("pk")
            self._note(model, counts=True, asked=asked)
            self._note(
                provider, counts=is_gone or provider.failed_with not in ("", self.model) or not provider.failures
            )

    def _note(self, row: Provider, *, counts: bool, asked: float | None = None) -> None:
        now = timezone.now()
        row.shut_until = _shut_until(row, now)
        if counts and row.shut_until is None:  # else it is known already
            row.failures += 1
            row.failed_with = self.model
            if row.failures >= FAILURES:
                row.shut_until = now + pause(row.failures)
                log.warning("a provider of models does not answer", provider=of(row.name), failures=row.failures)
        if asked:
            until = now + min(timedelta(seconds=asked), LONGEST)
            row.shut_until = max(row.shut_until or until, until)
        row.save()


def _claimed(doubted: Iterable[Provider], now: datetime) -> bool:
    """Whether the one attempt after a pause is this caller's: by compare-and-set, of each row there is."""
    for row in sorted(doubted, key=lambda row: row.name):
        seen = Provider.objects.filter(name=row.name, failures=row.failures, shut_until=row.shut_until)
        if not seen.update(failures=row.failures + 1, shut_until=now + pause(row.failures + 1)):
            return False
    return True


def _shut_until(row: Provider, now: datetime) -> datetime | None:
    """None when it may be called. A time that is far off was set by a clock that was wrong."""
    is_shut = row.shut_until is not None and now < row.shut_until <= now + LONGEST
    return row.shut_until if is_shut else None


def pause(failures: int) -> timedelta:
    """How long nobody calls after so many failures in a row."""
    return min(FIRST * (1 << min(max(failures - FAILURES, 0), 10)), LONGEST)
