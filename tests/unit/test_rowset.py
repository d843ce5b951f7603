"""Prepared statements of PostgreSQL, while another process migrates the database."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import NotSupportedError, connection, transaction

from tests.fault.test_writers import database_url

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def in_another_session(statement: str) -> None:
    with psycopg.connect(database_url(), autocommit=True) as another:
        another.execute(statement)


def read() -> list[tuple[str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT words FROM scratch WHERE words <> %s", ["no"])
        return list(cursor.fetchall())


@pytest.fixture
def migrated() -> Iterator[None]:
    """A table whose column changes its type after PostgreSQL prepared the statement that reads it."""
    in_another_session("CREATE TABLE scratch AS SELECT 'tea'::varchar(10) AS words")
    for _ in range(8):
        assert read() == [("tea",)]
    in_another_session("ALTER TABLE scratch ALTER COLUMN words TYPE varchar(20)")
    yield
    in_another_session("DROP TABLE scratch")


def test_a_statement_is_prepared_again(migrated: None) -> None:
    assert read() == [("tea",)]
    assert read() == [("tea",)]


def test_a_transaction_with_the_old_statement_fails_and_the_next_one_works(migrated: None) -> None:
    with pytest.raises(NotSupportedError), transaction.atomic():
        read()
    with transaction.atomic():
        assert read() == [("tea",)]
