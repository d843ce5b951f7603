"""A commit that need not wait for the disk, and the commits after it, which do."""

import pytest
from django.db import connection, transaction

from audit.waiting import without_disk_sync

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def waits_for_disk() -> bool:
    statement = "PRAGMA synchronous" if connection.vendor == "sqlite" else "SHOW synchronous_commit"
    with connection.cursor() as cursor:
        cursor.execute(statement)
        [value] = cursor.fetchone()
    return {2: True, "on": True, 1: False, "off": False}[value]


def test_only_commits_inside_the_block_do_not_wait() -> None:
    with without_disk_sync():
        assert not waits_for_disk()
    assert waits_for_disk()
    with pytest.raises(ZeroDivisionError), without_disk_sync():
        raise ZeroDivisionError
    assert waits_for_disk()


def test_inside_another_transaction_nothing_changes() -> None:
    with transaction.atomic(), without_disk_sync():
        assert waits_for_disk()
