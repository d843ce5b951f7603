"""Writing many rows at once, each with its own values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.bulk import update_many
from memory.models import Agent, CleanupDecision, Memory
from tests.steps import remember

pytestmark = pytest.mark.database

MOMENT = datetime(2026, 2, 1, 9, 30, 0, 123456, tzinfo=UTC)


def rows(agent: Agent) -> list[Memory]:
    return list(Memory.objects.of(agent).order_by("number"))


def test_each_row_gets_its_own_values_of_every_type(ada: Agent) -> None:
    remember(ada, "one", "two", "three")
    memories = rows(ada)
    for place, memory in enumerate(memories):
        memory.project = "p" * place * 40 + "'\"%s\\é"
        memory.sealed = bytes(range(place, 256))
        memory.constitutional = place == 1
        memory.superseded_by = 2**62 + place if place else None
        memory.discarded_at = None if place == 1 else MOMENT
    fields = ("project", "sealed", "constitutional", "superseded_by", "discarded_at")
    update_many(memories, fields)
    for written, memory in zip(rows(ada), memories, strict=True):
        assert bytes(written.sealed) == memory.sealed
        for name in set(fields) - {"sealed"}:
            assert getattr(written, name) == getattr(memory, name)


def test_a_row_that_was_not_read_is_not_updated(ada: Agent) -> None:
    with pytest.raises(ValueError, match="without an id"):
        update_many([Memory(agent=ada, number=1)], ["project"])


def test_other_fields_and_other_rows_stay(ada: Agent) -> None:
    remember(ada, "one", "two")
    one, two = rows(ada)
    one.project, one.category = "tern", "technical"
    with CaptureQueriesContext(connection) as asked:
        update_many([one], ["project"])
        update_many([], ["project"])
    assert len(asked) == 1
    assert [(row.project, row.category) for row in rows(ada)] == [("tern", two.category), (two.project, two.category)]


@pytest.mark.sqlite
def test_rows_beyond_what_one_statement_takes_are_written(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, *map(str, range(7)))
    memories = rows(ada)
    for memory in memories:
        memory.project = f"p{memory.number}"
    monkeypatch.setattr(connection.features, "max_query_params", 10)
    with CaptureQueriesContext(connection) as asked:
        update_many(memories, ["project"])
    assert len(asked) == 3
    assert [row.project for row in rows(ada)] == [f"p{row.number}" for row in memories]


def test_thousands_of_rows_are_written(ada: Agent) -> None:
    CleanupDecision.objects.bulk_create(
        [CleanupDecision(agent=ada, number=n, category="personal", is_kept=True, at=MOMENT) for n in range(12_000)]
    )
    decisions = list(CleanupDecision.objects.order_by("number"))
    for decision in decisions:
        decision.category = f"c{decision.number}"
    update_many(decisions, ["category"])
    written = CleanupDecision.objects.order_by("number").values_list("category", flat=True)
    assert list(written) == [f"c{n}" for n in range(12_000)]
