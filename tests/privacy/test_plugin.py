"""The search after the suite, on things left behind for it to find."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.db import connection

from memory.models import Agent, Tenant
from tests import refining, steps
from tests.privacy.marker import MARKER
from tests.privacy.plugin import left

pytestmark = pytest.mark.database


def test_a_log_is_searched(db: None, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"said " + gzip.compress(MARKER.encode()))
    assert [(leak.where, leak.form) for leak in left(tmp_path / "log")] == [("log", "gzip>text")]


def test_rows_are_searched(ada: Agent, tmp_path: Path) -> None:
    refining.change(ada, refinement_prompt=MARKER.encode().hex())
    assert {(leak.where, leak.form) for leak in left(tmp_path / "none")} >= {("memory_agent", "hex")}


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_database_files_are_searched(tmp_path: Path) -> None:
    Tenant.objects.create(slug="leaky", name=MARKER)
    found = {leak.where for leak in left(tmp_path / "none")}
    assert any(where.endswith("-wal") for where in found)
    _wipe()
    assert left(tmp_path / "none") == []


def _wipe() -> None:
    """Take it away again, from the log of writes too, so that the suite's own search finds nothing."""
    Tenant.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_what_the_house_keeps_is_clean(ada: Agent, tmp_path: Path) -> None:
    steps.remember(ada, f"{MARKER} drinks tea", tags=[MARKER])
    assert left(tmp_path / "none") == []
