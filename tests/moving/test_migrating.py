"""A migration: whole or not at all, read back, kept with its originals, taken back as one."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.consent import erasure, redaction, removal_requests
from memory.errors import NotFound
from memory.models import Agent, Memory, Moved, Original, OriginalPart
from memory.silo.silo import Silo
from memory.time_machine.rollback import What, preview, roll_back
from memory.transfer import migration, originals
from memory.transfer.planning import Fate
from tests.conftest import OPERATOR
from tests.moving.pieces import WRITTEN, fates, move, piece, steps
from tests.steps import ME, active, entries, fresh, problems, refused, remember, row, says, state

FILE = {"CLAUDE.md": (b"Ferries wait.\n", WRITTEN)}


def test_each_is_stored_as_it_was_planned(ada: Agent) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    done = move(
        ada,
        piece("a", "one", date=at, tags=("t",)),
        piece("b", "two", category="behavioral", kind="journal", project=""),
    )
    assert (done.stored, done.said_anew, done.entry) == (2, 0, fresh(ada).audit_seq)
    first, second = row(ada, 1), row(ada, 2)
    assert (first.category, first.kind, first.origin, first.project) == ("contextual", "core", at, "harbour-desk")
    assert (second.category, second.kind, second.origin, second.project) == ("behavioral", "journal", WRITTEN, "")
    assert says(ada, 1).content == "one"
    assert says(ada, 1).tags[:2] == ("t", "source-system:claude")
    assert problems(ada) == []


def test_one_entry_a_thousand_and_all_of_them_taken_back_as_one(ada: Agent) -> None:
    remember(ada, "before")
    before = state(ada)["memories"]
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


def test_an_import_that_is_none_is_said(ada: Agent) -> None:
    [number] = remember(ada, "one")
    with pytest.raises(errors.UnknownEntry, match="No import or migration begins with entry"):
        preview(fresh(ada), What.imported(row(ada, number).version))


def test_what_changed_is_said_anew_in_the_same_migration(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    done = move(ada, piece("a", "one, and more"), piece("b", "two"), piece("c", "three"))
    assert (done.stored, done.said_anew) == (1, 1)
    assert says(ada, 1).content == "one, and more"
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert says(ada, 1).content == "one"
    assert active(ada) == [1, 2]


def test_what_is_private_by_now_is_in_no_open_memory(ada: Agent) -> None:
    move(ada, piece("a", "Ines is here."), piece("b", "two"))
    done = move(ada, piece("a", "Ines is on leave.", category="personal", project=""), piece("b", "two"))
    assert (done.stored, done.said_anew) == (1, 0)
    assert active(ada) == [2, 3]
    assert (row(ada, 3).category, row(ada, 3).scope, says(ada, 1).content) == ("personal", "private", "Ines is here.")
    assert fates(ada, piece("a", "Ines is on leave.", category="personal", project="")) == [Fate.THERE]
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert active(ada) == [1, 2]
    assert says(ada, 1).content == "Ines is here."
    assert problems(ada) == []


def test_nothing_new_writes_nothing(ada: Agent) -> None:
    move(ada, piece("a"))
    before = state(ada)
    assert move(ada, piece("a")) == migration.Figures(None)
    assert state(ada) == before


def test_who_comes_between_is_told_and_nothing_is_stored_twice(ada: Agent) -> None:
    planned = steps(ada, piece("a"), piece("b", "two"))
    move(ada, piece("a"))
    with refused(ada, errors.Moved):
        migration.migrate(fresh(ada), planned, ME)
    with refused(ada, errors.Moved):
        migration.leave_beside(fresh(ada), planned)


def test_what_is_not_read_back_as_it_was_said_takes_all_with_it(ada: Agent) -> None:
    planned, silo = steps(ada, piece("a"), piece("b", "two")), Silo.open

    def otherwise(self: Silo, memory: Memory) -> object:
        opened = silo(self, memory)
        return opened if memory.number == 1 else type(opened)("altered", opened.tags)

    with mock.patch.object(Silo, "open", otherwise), refused(ada, migration.NotAsWritten):
        migration.migrate(fresh(ada), planned, ME, files={"b": (b"two", WRITTEN)})
    assert not Moved.objects.exists()
    assert not Original.objects.exists()


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
    assert migration.leave_beside(fresh(ada), steps(ada, piece("a"), piece("b", "two"))) == 2
    assert state(ada) == before
    assert fates(ada, piece("a"), piece("b", "two now"), piece("c", "three")) == [Fate.BESIDE, Fate.NEW, Fate.NEW]


def test_what_was_taken_back_can_be_left_beside(ada: Agent) -> None:
    done = move(ada, piece("a"))
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert migration.leave_beside(fresh(ada), steps(ada, piece("a"))) == 1
    assert fates(ada, piece("a")) == [Fate.BESIDE]


def test_what_was_left_beside_can_be_taken_in_once_it_changed(ada: Agent) -> None:
    migration.leave_beside(fresh(ada), steps(ada, piece("a")))
    assert move(ada, piece("a", "changed")).stored == 1
    assert fates(ada, piece("a", "changed")) == [Fate.THERE]


# --- originals


def test_files_are_kept_as_they_were_and_sealed(ada: Agent) -> None:
    data = b"\xef\xbb\xbf" + b"Ferries wait.\r\n" * 100_000
    done = move(ada, piece("sub/ü.md"), files={"sub/ü.md": (data, WRITTEN)})
    assert done.files == 1
    [(kept, path)] = originals.of(fresh(ada), done.entry)
    assert (path, kept.size, kept.modified_at) == ("sub/ü.md", len(data), WRITTEN)
    assert b"".join(originals.content(fresh(ada), kept)) == data
    assert all(b"Ferries" not in bytes(part.sealed) for part in OriginalPart.objects.all())
    assert OriginalPart.objects.count() == 2
    assert b"sub" not in bytes(kept.sealed_path)


def test_no_part_opens_in_anothers_place(ada: Agent) -> None:
    done = move(ada, piece("a"), files={"a": (b"1" * 2**20 + b"2", WRITTEN)})
    [(kept, _)] = originals.of(fresh(ada), done.entry)
    first, second = OriginalPart.objects.order_by("place")
    OriginalPart.objects.filter(pk=first.pk).update(sealed=second.sealed)
    with pytest.raises(errors.SealBroken):
        list(originals.content(fresh(ada), kept))


def test_a_migration_that_kept_nothing_is_said(ada: Agent) -> None:
    move(ada, piece("a"))
    assert list(originals.of(fresh(ada))) == []
    with pytest.raises(NotFound):
        list(originals.of(fresh(ada), 1))


def redact(agent: Agent, *numbers: int) -> redaction.Figures:
    asked = removal_requests.ask_redaction(fresh(agent), list(numbers), OPERATOR, reason="asked for by Ines")
    return redaction.redact(fresh(agent), asked.number, ME)


def test_redaction_takes_all_copies_and_no_second_migration_brings_it_back(ada: Agent) -> None:
    pieces = [piece("a#1", "of Ines"), piece("a#2", "of others"), piece("b", "two")]
    move(ada, *pieces, files={"a": (b"x", WRITTEN), "b": (b"y", WRITTEN)})
    move(ada, *pieces[:2], piece("b", "two now"), files={"b": (b"z", WRITTEN)})
    migration.leave_beside(fresh(ada), steps(ada, piece("c", "of Ines"), compares=False))
    assert redaction.preview(fresh(ada), [1]).originals == 3
    redact(ada, 1)
    assert list(originals.of(fresh(ada))) == []
    assert OriginalPart.objects.count() == 0
    assert fates(ada, *pieces[:2], piece("c", "of Ines")) == [Fate.THERE]
    assert Moved.objects.filter(content_digest=b"").count() == 2  # no guess can be tried on the one beside, either


def test_erasure_takes_all_of_it(ada: Agent) -> None:
    move(ada, piece("a"), files={"a": (b"x", WRITTEN)})
    assert erasure.preview(fresh(ada)).originals == 1
    asked = removal_requests.ask_erasure(fresh(ada), OPERATOR, reason="asked for")
    erasure.erase(fresh(ada), asked.number, ME)
    assert [rows.objects.count() for rows in (Moved, Original, OriginalPart)] == [0, 0, 0]
