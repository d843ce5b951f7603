"""A search for the marker after the whole suite, in every form.

The suite's conftest loads this plugin. Each worker searches its database before each flush of a transactional test and
at its end, and its log, which contains all that the suite logged. A leak fails the teardown of the test before it. The
failure names the file and the form, never the text.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from tests import environment
from tests.privacy import leaks, logbook
from tests.privacy.leaks import Leak
from tests.privacy.marker import MARKER


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(
    django_db_setup: None, _flush_past_the_guards: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Requests the database's fixture to end before it, and the suite's flush to search before it."""
    log = environment.FOLDER / f"log-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl"
    handler = logging.FileHandler(log, encoding="utf-8")  # opened now: a test may run as a user without permission
    handler.setFormatter(logbook.formatter())
    handler.addFilter(lambda record: not logbook.is_statement(record))  # `Watch` has these in its own log
    logging.getLogger().addHandler(handler)
    with _search_before_each_flush():
        yield
    logging.getLogger().removeHandler(handler)
    handler.close()
    with django_db_blocker.unblock():
        found = left(log)
        connection.close()
    _fail(found)


@contextmanager
def _search_before_each_flush() -> Iterator[None]:
    """A flush removes the rows that a transactional test has committed. Search them first, in the plain forms."""
    flush = TransactionTestCase._fixture_teardown

    def search_and_flush(test: TransactionTestCase) -> None:
        from tests.privacy import watch

        found = left(None, depth=0)
        flush(test)
        watch.shrink()
        _fail(found)

    TransactionTestCase._fixture_teardown = search_and_flush
    yield
    TransactionTestCase._fixture_teardown = flush


def left(log: Path | None, depth: int = leaks.MAX_DEPTH) -> list[Leak]:
    """Leaks in the files and rows of the database, and in the log."""
    from tests.privacy import watch  # not before Django is set up

    files = [*watch.database_files(), *([log] if log and log.is_file() else [])]
    found = [leak for file in files for leak in leaks.find(watch.content_of(file), MARKER, file.name, depth)]
    return found + [leak for table, rows in watch.tables() for leak in leaks.find(rows, MARKER, table, depth)]


def _fail(found: list[Leak]) -> None:
    if found:
        lines = "\n".join(f"{leak.where}: {leak.form} at {leak.offset}" for leak in found)
        pytest.fail(f"Content of memories remains in:\n{lines}", pytrace=False)
