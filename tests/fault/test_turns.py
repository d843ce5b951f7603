"""Writers that wait for SQLite's one place to write: evenly, as long as they were told to, and no longer."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from memory.models import Tenant

pytestmark = [pytest.mark.database, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]
WRITERS, EACH = 4, 30


def in_threads(act: Any, count: int) -> list[Any]:
    """What each run of it returned, or raised, in a thread and on a connection of its own."""
    results: list[Any] = []

    def run(place: int) -> None:
        try:
            results.append(act(place))
        except OperationalError as failure:
            results.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_none_of_many_writers_is_turned_away() -> None:
    def write(place: int) -> int:
        for number in range(EACH):
            with transaction.atomic():
                Tenant.objects.create(slug=f"t{place}-{number}")
                time.sleep(0.001)
        return place

    assert sorted(in_threads(write, WRITERS)) == list(range(WRITERS))
    assert Tenant.objects.count() == WRITERS * EACH


def test_a_writer_gives_up_in_the_end() -> None:
    def write(_: int) -> None:
        connection.ensure_connection()
        connection.settings_dict = connection.settings_dict | {"OPTIONS": {"timeout": 0.05}}
        with transaction.atomic():
            Tenant.objects.create(slug="late")

    with transaction.atomic():
        Tenant.objects.create(slug="first")
        [failure] = in_threads(write, 1)
    assert "locked" in str(failure)
    assert list(Tenant.objects.values_list("slug", flat=True)) == ["first"]


def test_other_statements_wait_as_before(db: None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == (30_000,)
