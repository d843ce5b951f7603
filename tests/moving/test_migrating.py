"""A migration stores all or nothing, reads back what it stored, and is rolled back as one."""

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


def redact(agent: Agent, *numbers: int) -> None:
    request = removal_requests.ask_redaction(fresh(agent), list(numbers), OPERATOR, reason="requested by Ines")
    redaction.redact(fresh(agent), request.number, ME)


def test_each_piece_is_stored_as_planned(ada: Agent) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    journal = piece("b", "two", category="behavioral", kind="journal", project="")
    done = move(ada, piece("a", "one", date=at, tags=("t",)), journal)
    assert (done.stored, done.revised, done.entry) == (2, 0, fresh(ada).audit_seq)
    first, second = row(ada, 1), row(ada, 2)
    assert (first.category, first.kind, first.origin, first.project) == ("contextual", "core", at, "harbour-desk")
    assert (second.category, second.kind, second.origin, second.project) == ("behavioral", "journal", WRITTEN, "")
    opened = says(ada, 1)
    assert (opened.content, opened.tags[:2]) == ("one", ("t", "source-system:claude"))
    assert problems(ada) == []


def test_a_migration_of_several_entries_is_rolled_back_as_one(ada: Agent) -> None:
    """Each entry holds a thousand memories."""
    [number] = remember(ada, "before")
    before = state(ada)["memories"]
    with pytest.raises(errors.UnknownEntry, match="No import or migration begins with entry"):
        preview(fresh(ada), What.imported(row(ada, number).version))
    done = move(ada, *(piece(f"m#{n}", f"Sailing {n}.") for n in range(2_500)))
    assert done.stored == 2_500
    assert [entry.operation for entry in entries(ada)[-3:]] == ["imported"] * 3
    assert {entry.detail["import"] for entry in entries(ada)[-3:]} == {done.entry}
    assert roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR).discarded == 2_500
    assert active(ada) == [1]
    assert [row for row in state(ada)["memories"] if row["number"] == 1] == before
    with pytest.raises(errors.AlreadyUndone, match="The import of entry"):
        preview(fresh(ada), What.imported(done.entry or 0))
    roll_back(fresh(ada), What.entry(fresh(ada).audit_seq), OPERATOR)
    assert len(active(ada)) == 2_501
    assert problems(ada) == []


def test_changed_pieces_are_revised_in_the_same_migration(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    done = move(ada, piece("a", "one, and more"), piece("b", "two"), piece("c", "three"))
    assert (done.stored, done.revised, says(ada, 1).content) == (1, 1, "one, and more")
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert (says(ada, 1).content, active(ada)) == ("one", [1, 2])


def test_a_piece_that_becomes_private_replaces_its_open_memory(ada: Agent) -> None:
    private = piece("a", "Ines is on leave.", category="personal", project="")
    move(ada, piece("a", "Ines is here."), piece("b", "two"))
    done = move(ada, private, piece("b", "two"))
    assert (done.stored, done.revised, active(ada)) == (1, 0, [2, 3])
    assert (row(ada, 3).category, row(ada, 3).scope, says(ada, 1).content) == ("personal", "private", "Ines is here.")
    assert states(ada, private) == [State.SAME]
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert (active(ada), says(ada, 1).content) == ([1, 2], "Ines is here.")
    assert problems(ada) == []


def test_a_plan_that_another_edit_made_stale_is_refused(ada: Agent) -> None:
    planned = steps(ada, piece("a"), piece("b", "two"))
    move(ada, piece("a"))
    with refused(ada, errors.TrailChanged):
        migration.migrate(fresh(ada), planned, ME)
    with refused(ada, errors.TrailChanged):
        migration.skip(fresh(ada), planned)
    before = state(ada)
    assert move(ada, piece("a")) == migration.Figures(None)
    assert state(ada) == before
    planned = steps(ada, piece("b", "two"))
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    with refused(ada, errors.MemoryDisabled):
        migration.migrate(fresh(ada), planned, ME)


def test_what_is_not_read_back_as_it_was_said_takes_all_with_it(ada: Agent) -> None:
    planned, silo = steps(ada, piece("a"), piece("b", "two")), Silo.open

    def alter(self: Silo, memory: Memory) -> object:
        opened = silo(self, memory)
        return opened if memory.number == 1 else type(opened)("altered", opened.tags)

    with mock.patch.object(Silo, "open", alter), refused(ada, migration.NotAsWritten):
        migration.migrate(fresh(ada), planned, ME)
    assert not ImportedPiece.objects.exists()


def test_the_number_of_queries_does_not_depend_on_the_number_of_pieces(ada: Agent) -> None:
    def queries(count: int, name: str) -> int:
        planned = steps(ada, *(piece(f"{name}#{n}", f"{name} {n}.") for n in range(count)))
        with CaptureQueriesContext(connection) as captured:
            migration.migrate(fresh(ada), planned, ME)
        return len(captured)

    queries(2, "warm")
    assert queries(2, "few") == queries(200, "many")


def test_a_piece_that_is_left_in_place_is_new_when_it_changes(ada: Agent) -> None:
    before = state(ada)
    assert migration.skip(fresh(ada), steps(ada, piece("a"), piece("b", "two"))) == 2
    assert state(ada) == before
    pieces = piece("a"), piece("b", "two now"), piece("c", "three")
    assert states(ada, *pieces) == [State.SAME, State.NEW, State.NEW]
    done = move(ada, *pieces[:2])
    assert (done.stored, states(ada, pieces[1])) == (1, [State.SAME])
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert migration.skip(fresh(ada), steps(ada, pieces[1])) == 1
    assert states(ada, pieces[1]) == [State.SAME]


# --- removal


def test_a_redacted_piece_does_not_come_back(ada: Agent) -> None:
    """Neither under another name, nor with another text of the same file."""
    migration.skip(fresh(ada), steps(ada, piece("skipped", "of Ines")))
    move(ada, piece("a#1", "of Ines"), piece("b", "two"))
    redact(ada, 1)
    for again in ("a#1", "a#9", "c"):
        assert len(reasons(ada, piece(again, "of Ines"))) == 1
    assert states(ada, piece("a#2", "of others")) == [State.NEW]  # its id is another
    assert reasons(ada, piece("a", "of Ines and others"))[0].startswith("was redacted, or is in a file")
    assert states(ada, piece("a#1", "of Ines"), compares=False) == [State.SAME]
    assert states(ada, piece("skipped", "of Ines")) == [State.SAME]


def test_erasure_removes_the_digests_of_pieces(ada: Agent) -> None:
    move(ada, piece("a"))
    erasure.erase(fresh(ada), removal_requests.ask_erasure(fresh(ada), OPERATOR, reason="requested").number, ME)
    assert ImportedPiece.objects.count() == 0
