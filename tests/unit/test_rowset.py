"""Statements that PostgreSQL has prepared, in a database that another process migrates meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import NotSupportedError, connection, transaction

from tests.fault.test_writers import database_url

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def elsewhere(statement: str) -> None:
    with psycopg.connect(database_url(), autocommit=True) as another:
        another.execute(statement)


def read() -> list[tuple[str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT words FROM scratch WHERE words <> %s", ["no"])
        return list(cursor.fetchall())


@pytest.fixture
def migrated() -> Iterator[None]:
    """A table that was read often enough for its statement to be prepared, and then had its column's type changed."""
    elsewhere("CREATE TABLE scratch AS SELECT 'tea'::varchar(10) AS words")
    for _ in range(8):
        assert read() == [("tea",)]
    elsewhere("ALTER TABLE scratch ALTER COLUMN words TYPE varchar(20)")
    yield
    elsewhere("DROP TABLE scratch")


def test_a_statement_is_prepared_anew(migrated: None) -> None:
    assert read() == [("tea",)]
    assert read() == [("tea",)]


def test_a_transaction_in_which_it_is_refused_ends_and_the_next_goes_on(migrated: None) -> None:
    with pytest.raises(NotSupportedError), transaction.atomic():
        read()
    with transaction.atomic():
        assert read() == [("tea",)]
