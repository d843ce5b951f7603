"""A migration: whole or not at all, read back, rolled back as one."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent, ImportedPiece, Memory
from memory.silo.silo import Silo
from memory.time_machine.rollback import What, preview, roll_back
from memory.transfer import migration
from memory.transfer.planning import State
from tests.conftest import OPERATOR
from tests.moving.pieces import WRITTEN, move, piece, reasons, states, steps
from tests.steps import ME, active, entries, fresh, problems, refused, remember, row, says, state


def test_each_is_stored_as_it_was_planned(ada: Agent) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    done = move(
        ada,
        piece("a", "one", date=at, tags=("t",)),
        piece("b", "two", category="behavioral", kind="journal", project=""),
    )
    assert (done.stored, done.revised, done.entry) == (2, 0, fresh(ada).audit_seq)
    first, second = row(ada, 1), row(ada, 2)
    assert (first.category, first.kind, first.origin, first.project) == ("contextual", "core", at, "harbour-desk")
    assert (second.category, second.kind, second.origin, second.project) == ("behavioral", "journal", WRITTEN, "")
    assert says(ada, 1).content == "one"
    assert says(ada, 1).tags[:2] == ("t", "source-system:claude")
    assert problems(ada) == []


def test_one_entry_a_thousand_and_all_of_them_taken_back_as_one(ada: Agent) -> None:
    [number] = remember(ada, "before")
    before = state(ada)["memories"]
    with pytest.raises(errors.UnknownEntry, match="No import or migration begins with entry"):
        preview(fresh(ada), What.imported(row(ada, number).version))
    done = move(ada, *(piece(f"m#{n}", f"Sailing {n}.") for n in range(2_500)))
    assert done.stored == 2_500
    assert [entry.operation for entry in entries(ada)[-3:]] == ["imported"] * 3
    assert {entry.detail["import"] for entry in entries(ada)[-3:]} == {done.entry}
    figures = roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert figures.discarded == 2_500
    assert active(ada) == [1]
    assert [row for row in state(ada)["memories"] if row["number"] == 1] == before
    with pytest.raises(errors.AlreadyUndone, match="The import of entry"):
        preview(fresh(ada), What.imported(done.entry or 0))
    roll_back(fresh(ada), What.entry(fresh(ada).audit_seq), OPERATOR)
    assert len(active(ada)) == 2_501
    assert problems(ada) == []


def test_what_changed_is_revised_in_the_same_migration(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    done = move(ada, piece("a", "one, and more"), piece("b", "two"), piece("c", "three"))
    assert (done.stored, done.revised) == (1, 1)
    assert says(ada, 1).content == "one, and more"
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert says(ada, 1).content == "one"
    assert active(ada) == [1, 2]


def test_what_is_private_by_now_is_in_no_open_memory(ada: Agent) -> None:
    move(ada, piece("a", "Ines is here."), piece("b", "two"))
    done = move(ada, piece("a", "Ines is on leave.", category="personal", project=""), piece("b", "two"))
    assert (done.stored, done.revised) == (1, 0)
    assert active(ada) == [2, 3]
    assert (row(ada, 3).category, row(ada, 3).scope, says(ada, 1).content) == ("personal", "private", "Ines is here.")
    assert states(ada, piece("a", "Ines is on leave.", category="personal", project="")) == [State.SAME]
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert active(ada) == [1, 2]
    assert says(ada, 1).content == "Ines is here."
    assert problems(ada) == []


def test_who_comes_between_is_told_and_nothing_is_stored_twice(ada: Agent) -> None:
    planned = steps(ada, piece("a"), piece("b", "two"))
    move(ada, piece("a"))
    with refused(ada, errors.TrailChanged):
        migration.migrate(fresh(ada), planned, ME)
    with refused(ada, errors.TrailChanged):
        migration.skip(fresh(ada), planned)
    before = state(ada)
    assert move(ada, piece("a")) == migration.Figures(None)
    assert state(ada) == before


def test_what_is_not_read_back_as_it_was_said_takes_all_with_it(ada: Agent) -> None:
    planned, silo = steps(ada, piece("a"), piece("b", "two")), Silo.open

    def otherwise(self: Silo, memory: Memory) -> object:
        opened = silo(self, memory)
        return opened if memory.number == 1 else type(opened)("altered", opened.tags)

    with mock.patch.object(Silo, "open", otherwise), refused(ada, migration.NotAsWritten):
        migration.migrate(fresh(ada), planned, ME)
    assert not ImportedPiece.objects.exists()


def test_memory_switched_off_meanwhile_stores_nothing(ada: Agent) -> None:
    planned = steps(ada, piece("a"))
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    with refused(ada, errors.MemoryDisabled):
        migration.migrate(fresh(ada), planned, ME)


def test_a_few_queries_however_many(ada: Agent) -> None:
    def queries(count: int, name: str) -> int:
        planned = steps(ada, *(piece(f"{name}#{n}", f"{name} {n}.") for n in range(count)))
        with CaptureQueriesContext(
            connection,
        ) as asked:
            migration.migrate(fresh(ada), planned, ME)
        return len(asked)

    queries(2, "warm")
    assert queries(2, "few") == queries(200, "many")


# --- left beside


def test_what_is_left_beside_is_asked_about_again_once_it_changes(ada: Agent) -> None:
    before = state(ada)
    assert migration.skip(fresh(ada), steps(ada, piece("a"), piece("b", "two"))) == 2
    assert state(ada) == before
    assert states(ada, piece("a"), piece("b", "two now"), piece("c", "three")) == [State.SAME, State.NEW, State.NEW]
    assert move(ada, piece("a"), piece("b", "two now")).stored == 1
    assert states(ada, piece("b", "two now")) == [State.SAME]


def test_what_was_taken_back_can_be_left_beside(ada: Agent) -> None:
    done = move(ada, piece("a"))
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert migration.skip(fresh(ada), steps(ada, piece("a"))) == 1
    assert states(ada, piece("a")) == [State.SAME]


# --- removal


def redact(agent: Agent, *numbers: int) -> redaction.Figures:
    asked = removal_requests.ask_redaction(fresh(agent), list(numbers), OPERATOR, reason="asked for by Ines")
    return redaction.redact(fresh(agent), asked.number, ME)


def test_what_was_redacted_comes_back_by_no_name_and_in_no_other_words_of_its_file(ada: Agent) -> None:
    move(ada, piece("a#1", "of Ines"), piece("b", "two"))
    redact(ada, 1)
    for again in ("a#1", "a#9", "c"):
        assert len(reasons(ada, piece(again, "of Ines"))) == 1
    assert states(ada, piece("a#2", "of others")) == [State.NEW]  # an id tells it apart
    assert reasons(ada, piece("a", "of Ines and others"))[0].startswith("was redacted, or is in a file")
    assert states(ada, piece("a#1", "of Ines"), compares=False) == [State.SAME]


def test_what_was_left_beside_is_not_found_by_its_words_when_those_are_redacted(ada: Agent) -> None:
    migration.skip(fresh(ada), steps(ada, piece("c", "of Ines")))
    move(ada, piece("a", "of Ines"))
    redact(ada, 1)
    assert states(ada, piece("c", "of Ines")) == [State.SAME]


def test_erasure_takes_the_digests(ada: Agent) -> None:
    move(ada, piece("a"))
    asked = removal_requests.ask_erasure(fresh(ada), OPERATOR, reason="asked for")
    erasure.erase(fresh(ada), asked.number, ME)
    assert ImportedPiece.objects.count() == 0
