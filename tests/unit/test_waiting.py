"""What need not wait for the disk does not, and what comes after it does."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from audit.waiting import without_disk_sync

pytestmark = pytest.mark.database


@pytest.mark.django_db(transaction=True)
def test_a_commit_is_not_waited_for_and_the_next_one_is() -> None:
    with without_disk_sync():
        assert within() == "off"
    assert within() == "on"


@pytest.mark.django_db(transaction=True)
def test_also_where_it_fails() -> None:
    with pytest.raises(ZeroDivisionError), without_disk_sync():
        raise ZeroDivisionError
    assert within() == "on"


@pytest.mark.django_db(transaction=True)
def test_a_part_of_anothers_waits_as_that_does() -> None:
    with transaction.atomic(), without_disk_sync():
        assert within() == "on"


def within() -> str:
    statement = "PRAGMA synchronous" if connection.vendor == "sqlite" else "SHOW synchronous_commit"
    with connection.cursor() as cursor:
        cursor.execute(statement)
        [said] = cursor.fetchone()
    return {2: "on", 1: "off"}.get(said, said)
