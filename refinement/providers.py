"""The breaker of a provider: one that does not answer is left alone by everybody, instead of failing every session.

Shared by all processes through one row a provider. After two failures in a row, whoever made them, nobody calls it for
a while, that doubles from 15 seconds to 5 minutes; then one caller tries, and the others wait for how it goes. What the
provider itself asks for (`Retry-After`) holds for everybody, too. An answer of any kind ends it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.utils import timezone

from refinement.models import Provider

FAILURES = 2  # in a row, after which nobody calls
FIRST, LONGEST = timedelta(seconds=15), timedelta(minutes=5)

log = structlog.get_logger("palimpsest.models")


def of(model: str) -> str:
    """The provider of a model, as it is written in an agent's settings."""
    return model.partition("/")[0][:20]


def shut(now: datetime | None = None) -> set[str]:
    """The providers that nobody calls now."""
    return set(Provider.objects.filter(shut_until__gt=now or timezone.now()).values_list("name", flat=True))


def is_doubted(name: str) -> bool:
    """Whether it failed when it was last called, so that a session might be begun in vain."""
    return Provider.objects.filter(name=name, failures__gte=FAILURES).exists()


class Gate:
    """What every call of a provider passes, each attempt of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._failed_before = False

    def wait(self) -> float:
        """Seconds after which to ask again, or 0: go ahead. Of all who ask once a pause is over, one may go."""
        now = timezone.now()
        row = Provider.objects.filter(name=self.name).first()
        self._failed_before = row is not None and row.failures > 0
        if row is None or (row.shut_until is None and row.failures < FAILURES):
            return 0
        if row.shut_until is not None and row.shut_until > now:
            return (row.shut_until - now).total_seconds()
        if row.failures < FAILURES:
            return 0
        until = now + pause(row.failures + 1)
        mine = Provider.objects.filter(name=self.name, failures=row.failures, shut_until=row.shut_until)
        if mine.update(failures=row.failures + 1, shut_until=until):
            return 0
        return self.wait()

    def answered(self) -> None:
        """The provider answered, whatever it said."""
        if self._failed_before:
            was = Provider.objects.filter(name=self.name, failures__gte=FAILURES).exists()
            Provider.objects.filter(name=self.name).update(failures=0, shut_until=None)
            if was:
                log.info("a provider of models answers again", provider=self.name)

    def failed(self, asked: float | None = None) -> None:
        """It did not answer, or asked to be left alone for some seconds."""
        now = timezone.now()
        with transaction.atomic():
            Provider.objects.get_or_create(name=self.name)
            row = Provider.objects.select_for_update().get(name=self.name)
            if row.shut_until is None or row.shut_until <= now:  # else it is known, or this was the one attempt
                row.failures += 1
                if row.failures >= FAILURES:
                    row.shut_until = now + pause(row.failures)
                    log.warning("a provider of models does not answer", provider=self.name, failures=row.failures)
            if asked:
                until = now + min(timedelta(seconds=asked), LONGEST)
                row.shut_until = max(row.shut_until or until, until)
            row.save()


def pause(failures: int) -> timedelta:
    """How long nobody calls after so many failures in a row."""
    return min(FIRST * (1 << min(max(failures - FAILURES, 0), 10)), LONGEST)
