"""After the whole suite: what is left of it, searched for the mark of its memories in every form.

Loaded by `pytest_plugins = ["tests.privacy.plugin"]` in the suite's conftest. Each worker looks through its own
database, before each flush of a transactional test and once more before it is destroyed, and through its own log,
which holds all that the suite logged, as the service writes it. A leak fails the teardown of the test it is found
after, and names file and form, never the text.
"""

from __future__ import annotations

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
    """Ends before the database does, because it asks for its fixture; and looks before the suite's flush, likewise."""
    log = environment.FOLDER / f"log-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl"
    handler = logging.FileHandler(log, encoding="utf-8")  # open now: a test may be somebody who may not
    handler.setFormatter(logbook.formatter())
    logging.getLogger().addHandler(handler)
    with _looking_before_each_flush():
        yield
    logging.getLogger().removeHandler(handler)
    handler.close()
    with django_db_blocker.unblock():
        found = left(log)
        connection.close()
    _fail_of(found)


@contextmanager
def _looking_before_each_flush() -> Iterator[None]:
    """What a transactional test commits is gone with its flush: it is looked through before, in the plain forms."""
    flush = TransactionTestCase._fixture_teardown

    def looks_first(test: TransactionTestCase) -> None:
        found = left(None, depth=0)
        flush(test)
        _fail_of(found)

    TransactionTestCase._fixture_teardown = looks_first
    yield
    TransactionTestCase._fixture_teardown = flush


def left(log: Path | None, depth: int = leaks.MAX_DEPTH) -> list[Leak]:
    """Leaks in the database as files and as rows, and in the log."""
    from tests.privacy import watch  # not before Django is set up

    files = [*watch.database_files(), *([log] if log and log.is_file() else [])]
    found = [leak for file in files for leak in leaks.find(watch.said_by(file), MARKER, file.name, depth)]
    return found + [leak for table, rows in watch.tables() for leak in leaks.find(rows, MARKER, table, depth)]


def _fail_of(found: list[Leak]) -> None:
    if found:
        told = "\n".join(f"{leak.where}: {leak.form} at {leak.offset}" for leak in found)
        pytest.fail(f"Memories' texts were left behind:\n{told}", pytrace=False)
