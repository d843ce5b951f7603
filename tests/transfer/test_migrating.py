"""A plan states which memory each piece becomes. A migration stores all or nothing, and is rolled back as one."""

import tracemalloc
from datetime import UTC, datetime
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.consent import erasure, redaction, requests
from memory.errors import Invalid
from memory.models import Agent, ImportedPiece, Memory
from memory.silo.silo import Silo
from memory.time_machine.rollback import What, preview, roll_back
from memory.transfer import migration
from memory.transfer.planning import Choice, State
from memory.transfer.reading import unique
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.rules import recordings
from tests.steps import (
    ME,
    active,
    entries,
    fresh,
    problems,
    protect,
    refused,
    remember,
    row,
    says,
    signed_update,
    state,
)
from tests.transfer.pieces import HARBOUR, NOW, WRITTEN, left_out_piece, move, piece, plan, reasons, states, steps

KEY = "ferry-desk-not-a-real-key-0001"
SECRET = f"The desk signs in, and its password is {KEY}."
TOKEN = "ghp_" + "a1B2c3D4" * 4 + "wxyz"
PERSONAL = {"category": "personal", "project": ""}


def test_tags_name_the_source_as_the_settings_state(ada: Agent) -> None:
    path = ".claude/rules/quays.md"
    [step] = steps(ada, piece(path, tags=("glob:quays/**",), transformed=("front matter left out",)))
    assert step.draft.tags == (
        "glob:quays/**",
        "source-system:claude",
        "migrated:2026-11-24T06:00:00Z",
        f"migration:from {path}",
        "transformed:front matter left out",
        "transformed:dated by its file",
        "compatibility:its file was left as it is",
    )
    off = ("migration_notes_inclusion", "cross_system_compatibility")
    recordings.settings(ada, **{f"migration_settings__{name}": False for name in off})
    [step] = steps(ada, piece(tags=("a",)))
    assert step.draft.tags == ("a", "source-system:claude", "migrated:2026-11-24T06:00:00Z")


def test_long_keys_and_many_tags_fit_in_the_tags(ada: Agent) -> None:
    deep = "".join(f"deep{n}/" for n in range(45))
    many = tuple(f"glob:{n}" for n in range(256))
    [step] = steps(ada, piece(f"{deep}two\nlines.md#slug", tags=many, transformed=("ä" * 80,)))
    assert len(step.draft.tags) == 256
    notes = [tag.removeprefix("migration:") for tag in step.draft.tags if tag.startswith("migration:")]
    assert "".join(notes) == f"from {deep}two lines.md#slug"


def test_secrets_are_masked_unless_the_memory_is_private_or_masking_is_off(ada: Agent) -> None:
    open_, private = steps(ada, piece("a", SECRET), piece("b", SECRET, category="credentials", project=""))
    assert KEY not in open_.draft.content
    assert "1 secret masked" in open_.transformed
    assert private.draft.content == SECRET
    assert steps(ada, piece("a", SECRET), masks=False)[0].draft.content == SECRET
    recordings.settings(ada, capture_settings__sensitive_data_masking=False)
    assert steps(ada, piece("a", SECRET))[0].draft.content == SECRET


def test_a_secret_is_in_no_tag_and_in_no_project(ada: Agent) -> None:
    [step] = steps(ada, piece(f"a.md#{TOKEN}", "Of the crane.", tags=(TOKEN, "password:hunter2xyz")))
    assert not [tag for tag in step.draft.tags if TOKEN in tag or "hunter2xyz" in tag]
    found = plan(ada, piece("a", project=TOKEN))
    assert (found.steps, len(found.left_out)) == ([], 1)
    assert TOKEN not in found.left_out[0].why


def test_advertisements_and_licences_are_removed(ada: Agent) -> None:
    [step] = steps(ada, piece("a", "Ferries wait.\n\n<!-- LICENSE: Copyright (c) 2025 Somebody. MIT License. -->\n"))
    assert step.draft.content == "Ferries wait."
    assert "licence or brand left out" in step.transformed


def test_an_invalid_piece_is_left_out_with_the_reason(ada: Agent) -> None:
    found = plan(ada, piece("a", "hidden-marker"), piece("b", project="..", content="Elsewhere."), left_out_piece())
    assert [step.key for step in found.steps] == ["a"]
    assert [each.key for each in found.left_out] == ["b", "empty.md"]
    assert found.left_out[0].why.startswith("project ")
    assert found.left_out[1].why == "is empty"
    assert "hidden-marker" not in repr(found) + repr(found.steps) + repr(found.steps[0].draft)


def test_a_choice_selects_by_category_path_and_date(ada: Agent) -> None:
    dated = piece("c.json#1", "three", system="mem0", category="behavioral", project="", date=NOW)
    found = steps(ada, piece("a.md", "one"), piece("docs/b.md", "two"), dated)
    for choice, keys in (
        (Choice(), ["a.md", "docs/b.md", "c.json#1"]),
        (Choice(categories=frozenset({"contextual"})), ["a.md", "docs/b.md"]),
        (Choice(paths=("docs/*",)), ["docs/b.md"]),
        (Choice(paths=("docs/*", "*.json#*")), ["docs/b.md", "c.json#1"]),
        (Choice(since=NOW), ["c.json#1"]),
        (Choice(until=WRITTEN), ["a.md", "docs/b.md"]),
    ):
        assert [step.key for step in found if choice.wants(step)] == keys


def test_an_imported_piece_is_the_same_or_changed(ada: Agent) -> None:
    assert states(ada, piece("a"), piece("b", "Other.")) == [State.NEW, State.NEW]
    move(ada, piece("a"), piece("b", "Other."))
    pieces = piece("a"), piece("b", "Another."), piece("c", "More.")
    assert states(ada, *pieces) == [State.SAME, State.CHANGED, State.NEW]
    assert [step.number for step in steps(ada, piece("a"), piece("b", "Other."))] == [1, 2]
    assert states(ada, piece("a"), project="pilot-app", compares=False) == [State.NEW]


def test_a_piece_that_moves_to_another_place_replaces_its_memory(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    for place in (PERSONAL, {"project": "pilot-app"}, {"kind": "journal"}):
        for content in ("one", "two"):
            [step] = steps(ada, piece("a", content, **place))
            assert (step.state, step.replaces) == (State.CHANGED, True)


@pytest.mark.parametrize("edit", ["revised", "protected", "discarded"])
def test_a_changed_piece_of_a_changed_memory_is_left_out(ada: Agent, edit: str) -> None:
    move(ada, piece("a", "one"))
    if edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    elif edit == "protected":
        protect(ada, 1)
    else:
        operations.discard(ada, [1], ME)
    assert reasons(ada, piece("a", "two"))[0].startswith("changed, and memory 1 was also changed here")
    assert states(ada, piece("a", "one")) == [State.SAME]


def test_a_piece_is_new_after_a_rollback(ada: Agent) -> None:
    done = move(ada, piece("a", "one"))
    roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR)
    assert states(ada, piece("a", "one")) == [State.NEW]
    again = move(ada, piece("a", "one"))
    assert (again.stored, row(ada, 2).discarded_at) == (1, None)
    assert states(ada, piece("a", "one")) == [State.SAME]
    done = move(ada, piece("a", "two"))
    roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR)
    assert states(ada, piece("a", "two")) == [State.CHANGED]
    operations.revise(ada, 2, ME, content="mine")
    assert states(ada, piece("a", "two")) == [State.SAME]
    assert len(reasons(ada, piece("a", "three"))) == 1


def test_a_category_that_is_off_is_left_out(ada: Agent) -> None:
    recordings.off(ada, "contextual")
    pieces = (piece("a"), piece("b", "Other.", category="technical", project=""))
    assert states(ada, *pieces) == [State.NEW]
    assert reasons(ada, *pieces) == ["has the category contextual, which is off"]


def test_a_text_of_an_existing_memory_is_reported_to_the_agents_side_alone(ada: Agent) -> None:
    remember(ada, "Ferries wait.", category="contextual", project="pilot-app")
    remember(ada, "Ferries wait.", category="technical")
    assert states(ada, piece("a")) == [State.NEW]  # the same text in another place is another memory
    remember(ada, "Ferries wait.", category="contextual", project=HARBOUR)
    found = plan(ada, piece("a"))
    assert (found.steps, [each.why for each in found.left_out]) == ([], ["has the same text as memory 3"])
    assert states(ada, piece("a"), compares=False) == [State.NEW]
    move(ada, piece("pin", "The PIN is 4711.", category="credentials", project=""))
    for guess in ("The PIN is 4710.", "The PIN is 4711."):
        assert states(ada, piece("pin", guess, category="credentials", project=""), compares=False) == [State.SAME]


def test_the_old_text_of_a_revised_memory_can_come_from_another_file(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    assert states(ada, piece("a", "two"), piece("b", "one")) == [State.CHANGED, State.NEW]


def test_a_piece_is_recognized_from_a_folder_below(ada: Agent) -> None:
    move(ada, piece("AGENTS.md", "root"), piece("sub/AGENTS.md", "sub"))
    [step] = steps(ada, piece("AGENTS.md", "sub"), where="sub")
    assert (step.number, step.state) == (2, State.SAME)


def test_two_pieces_can_have_one_key(ada: Agent) -> None:
    assert move(ada, piece("a", "one"), piece("a", "two")).stored == 2
    assert states(ada, piece("a", "one"), piece("a", "two")) == [State.SAME, State.SAME]


def test_the_number_of_pieces_is_limited(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.transfer.reading.MAX_PIECES", 2)
    with pytest.raises(Invalid, match="more than 2 pieces"):
        unique([piece("a"), left_out_piece("b"), piece("c", "three")])


def test_a_step_takes_less_than_900_bytes(ada: Agent) -> None:
    pieces = [piece(f"a.json#{n}", f"m{n}", id="", by_words=True) for n in range(2_000)]
    tracemalloc.start()
    found = plan(ada, *pieces)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.steps) == 2_000
    assert held / 2_000 < 900


def redact(agent: Agent, *numbers: int) -> None:
    request = requests.ask_redaction(fresh(agent), list(numbers), OPERATOR, reason="requested by Ines")
    redaction.redact(fresh(agent), request.number, ME)


def test_each_piece_is_stored_as_planned(ada: Agent) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    journal = piece("b", "two", category="behavioral", kind="journal", project="")
    pieces = piece("a", "one", date=at, tags=("t",)), journal, piece("c", "three", project="pilot-app")
    assert ["dated by its file" in step.transformed for step in steps(ada, *pieces)] == [False, True, True]
    done = move(ada, *pieces)
    assert row(ada, 3).project == "pilot-app"
    assert (done.stored, done.revised, done.entry) == (3, 0, fresh(ada).audit_seq)
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
        preview(fresh(ada), What("import", row(ada, number).version))
    done = move(ada, *(piece(f"m#{n}", f"Sailing {n}.") for n in range(2_500)))
    assert done.stored == 2_500
    assert [entry.operation for entry in entries(ada)[-3:]] == ["imported"] * 3
    assert {entry.detail["import"] for entry in entries(ada)[-3:]} == {done.entry}
    assert roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR).discarded == 2_500
    assert active(ada) == [1]
    assert [row for row in state(ada)["memories"] if row["number"] == 1] == before
    with pytest.raises(errors.AlreadyUndone, match="The import of entry"):
        preview(fresh(ada), What("import", done.entry or 0))
    roll_back(fresh(ada), What("entry", fresh(ada).audit_seq), OPERATOR)
    assert len(active(ada)) == 2_501
    assert problems(ada) == []


def test_changed_pieces_are_revised_in_the_same_migration(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    done = move(ada, piece("a", "one, and more"), piece("b", "two"), piece("c", "three"))
    assert (done.stored, done.revised, says(ada, 1).content) == (1, 1, "one, and more")
    roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR)
    assert (says(ada, 1).content, active(ada)) == ("one", [1, 2])


def test_a_piece_that_becomes_private_replaces_its_open_memory(ada: Agent) -> None:
    private = piece("a", "Ines is on leave.", category="personal", project="")
    move(ada, piece("a", "Ines is here."), piece("b", "two"))
    done = move(ada, private, piece("b", "two"))
    assert (done.stored, done.revised, active(ada)) == (1, 0, [2, 3])
    assert (row(ada, 3).category, row(ada, 3).scope, says(ada, 1).content) == ("personal", "private", "Ines is here.")
    assert states(ada, private) == [State.SAME]
    roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR)
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
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    with refused(ada, errors.MemoryDisabled):
        migration.migrate(fresh(ada), planned, ME)


def test_a_migration_is_undone_if_a_memory_reads_back_differently(ada: Agent) -> None:
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
    roll_back(fresh(ada), What("import", done.entry or 0), OPERATOR)
    assert migration.skip(fresh(ada), steps(ada, pieces[1])) == 1
    assert states(ada, pieces[1]) == [State.SAME]


def test_a_redacted_piece_does_not_come_back(ada: Agent) -> None:
    """Neither in its place, nor with another text of the same file."""
    migration.skip(fresh(ada), steps(ada, piece("skipped", "of Ines")))
    move(ada, piece("a#1", "of Ines"), piece("b", "two"))
    redact(ada, 1)
    assert len(reasons(ada, piece("a#1", "of Ines"))) == 1
    assert states(ada, piece("a#2", "of others")) == [State.NEW]  # its id is another
    assert reasons(ada, piece("a", "of Ines and others"))[0].startswith("was redacted, or is in a file")
    assert states(ada, piece("a#1", "of Ines"), compares=False) == [State.SAME]
    assert states(ada, piece("skipped", "of Ines")) == [State.SAME]


def test_a_redaction_leaves_no_digest_that_depends_on_the_text(ada: Agent) -> None:
    by_id, by_words = steps(ada, piece("a#1", "of Ines"), piece("b", "of Ines", by_words=True))
    migration.migrate(fresh(ada), [by_id, by_words], ME)
    redact(ada, 1, 2)
    rows = ImportedPiece.objects.values_list("source_digest", "text_digest")
    left = {bytes(digest) for row in rows for digest in row}
    assert left & {by_id.source, by_id.text, by_words.source} == {by_id.source}


def test_erasure_removes_the_digests_of_pieces(ada: Agent) -> None:
    move(ada, piece("a"))
    erasure.erase(fresh(ada), requests.ask_erasure(fresh(ada), OPERATOR, reason="requested").number, ME)
    assert ImportedPiece.objects.count() == 0
