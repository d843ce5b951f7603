"""What of another system's memory would become what, and what became of it already."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from unittest import mock

import pytest

from memory.errors import Invalid
from memory.masking.scanner import masked
from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from memory.transfer.planning import Choice, State
from memory.transfer.reading import unique
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.moving.pieces import HARBOUR, NOW, WRITTEN, move, no_piece, piece, plan, reasons, states, steps
from tests.rules import talking
from tests.steps import ME, fresh, protect, remember, row

KEY = "ferry-desk-not-a-real-key-0001"
DEEP = "".join(f"deep{n}/" for n in range(45))
SECRET = f"The desk signs in, and its password is {KEY}."


# --- what it would be


def test_its_project_is_the_folders_and_its_date_its_files_unless_it_has_its_own(ada: Agent) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    here, none, named = steps(
        ada, piece("a"), piece("b", category="technical", project=""), piece("c", project="pilot-app", date=at)
    )
    assert (here.draft.project, none.draft.project, named.draft.project) == (HARBOUR, "", "pilot-app")
    assert (here.origin, "dated by its file" in here.transformed) == (WRITTEN, True)
    assert (named.origin, "dated by its file" in named.transformed) == (at, False)


def test_its_tags_say_where_it_came_from_as_far_as_the_settings_want(ada: Agent) -> None:
    [step] = steps(
        ada, piece(".claude/rules/quays.md", tags=("glob:quays/**",), transformed=("front matter left out",))
    )
    assert step.draft.tags == (
        "glob:quays/**",
        "source-system:claude",
        "migrated:2026-11-24T06:00:00Z",
        "migration:from .claude/rules/quays.md",
        "transformed:front matter left out",
        "transformed:dated by its file",
        "compatibility:its file was left as it is",
    )
    off = {"migration_notes_inclusion": False, "cross_system_compatibility": False}
    talking.settings(ada, **{f"migration_settings__{name}": value for name, value in off.items()})
    [step] = steps(ada, piece(tags=("a",)))
    assert step.draft.tags == ("a", "source-system:claude", "migrated:2026-11-24T06:00:00Z")


def test_notes_fit_whatever_the_key_and_however_many_its_tags(ada: Agent) -> None:
    many = tuple(f"glob:{n}" for n in range(256))
    [step] = steps(ada, piece(DEEP + "two\nlines.md#slug", tags=many, transformed=("ä" * 80,)))
    assert len(step.draft.tags) == 256
    told = [tag.removeprefix("migration:") for tag in step.draft.tags if tag.startswith("migration:")]
    assert "".join(told) == "from " + DEEP + "two lines.md#slug"


def test_secrets_are_masked_in_what_is_not_private_unless_a_person_wants_them(ada: Agent) -> None:
    open_, private = steps(ada, piece("a", SECRET), piece("b", SECRET, category="credentials", project=""))
    assert KEY not in open_.draft.content
    assert "1 secret masked" in open_.transformed
    assert private.draft.content == SECRET
    assert steps(ada, piece("a", SECRET), masks=False)[0].draft.content == SECRET
    talking.settings(ada, capture_settings__sensitive_data_masking=False)
    assert steps(ada, piece("a", SECRET))[0].draft.content == SECRET


def test_brands_and_licences_are_left_out_and_told(ada: Agent) -> None:
    [step] = steps(ada, piece("a", "Ferries wait.\n\n<!-- LICENSE: Copyright (c) 2025 Somebody. MIT License. -->\n"))
    assert step.draft.content == "Ferries wait."
    assert "licence or brand left out" in step.transformed


def test_what_cannot_be_held_is_left_out_with_the_reason(ada: Agent) -> None:
    found = plan(ada, piece("a"), piece("b", project="..", content="Elsewhere."), no_piece())
    assert [step.key for step in found.steps] == ["a"]
    assert [(each.key, each.why.split(",")[0]) for each in found.left_out][1] == ("empty.md", "is empty")
    assert found.left_out[0].key == "b"
    assert found.left_out[0].why.startswith("project ")


def test_a_plan_shows_nothing_of_what_it_holds(ada: Agent) -> None:
    found = plan(ada, piece("a", "hidden-marker words"))
    assert "hidden-marker" not in repr(found) + repr(found.steps) + repr(found.steps[0].draft)


def test_what_is_wanted(ada: Agent) -> None:
    found = steps(
        ada,
        piece("a.md", "one"),
        piece("docs/b.md", "two"),
        piece("c.json#1", "three", system="mem0", category="behavioral", project="", date=NOW),
    )
    for choice, keys in (
        (Choice(), ["a.md", "docs/b.md", "c.json#1"]),
        (Choice(categories=frozenset({"contextual"})), ["a.md", "docs/b.md"]),
        (Choice(paths=("docs/*",)), ["docs/b.md"]),
        (Choice(paths=("docs/*", "*.json#*")), ["docs/b.md", "c.json#1"]),
        (Choice(since=NOW), ["c.json#1"]),
        (Choice(until=WRITTEN), ["a.md", "docs/b.md"]),
    ):
        assert [step.key for step in found if choice.wants(step)] == keys


# --- what became of it


def test_twice_is_once_and_what_changed_is_revised(ada: Agent) -> None:
    assert states(ada, piece("a"), piece("b", "Other.")) == [State.NEW, State.NEW]
    move(ada, piece("a"), piece("b", "Other."))
    assert states(ada, piece("a"), piece("b", "Another."), piece("c", "More.")) == [
        State.SAME,
        State.CHANGED,
        State.NEW,
    ]
    assert [step.number for step in steps(ada, piece("a"), piece("b", "Other."))] == [1, 2]
    assert states(ada, piece("a"), project="pilot-app", compares=False) == [State.NEW]


def test_what_belongs_elsewhere_by_now_is_another_memory(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    for elsewhere in ({"category": "personal", "project": ""}, {"project": "pilot-app"}, {"kind": "journal"}):
        for content in ("one", "two"):
            [step] = steps(ada, piece("a", content, **elsewhere))
            assert (step.state, step.replaces) == (State.CHANGED, True)


@pytest.mark.parametrize("edit", ["revised", "protected", "discarded"])
def test_a_file_that_changed_is_left_where_its_memory_did_too(ada: Agent, edit: str) -> None:
    move(ada, piece("a", "one"))
    if edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    elif edit == "protected":
        protect(ada, 1)
    else:
        operations.discard(ada, [1], ME)
    assert reasons(ada, piece("a", "two"))[0].startswith("changed, and memory 1 changed here, too")
    assert states(ada, piece("a", "one")) == [State.SAME]


def test_what_was_merged_since_is_not_taken_again(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    operations.consolidate(ada, [1, 2], "one and two", ME)
    assert states(ada, piece("a", "one"), piece("b", "two")) == [State.SAME, State.SAME]


def test_what_was_taken_back_is_new_again(ada: Agent) -> None:
    done = move(ada, piece("a", "one"))
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert states(ada, piece("a", "one")) == [State.NEW]
    again = move(ada, piece("a", "one"))
    assert (again.stored, row(ada, 2).discarded_at) == (1, None)
    assert states(ada, piece("a", "one")) == [State.SAME]


def test_what_was_revised_and_taken_back_can_be_said_again(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    done = move(ada, piece("a", "two"))
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert states(ada, piece("a", "two")) == [State.CHANGED]
    operations.revise(ada, 1, ME, content="mine")
    assert states(ada, piece("a", "two")) == [State.SAME]
    assert len(reasons(ada, piece("a", "three"))) == 1


def test_nothing_of_a_category_that_is_off(ada: Agent) -> None:
    talking.off(ada, "contextual")
    pieces = (piece("a"), piece("b", "Other.", category="technical", project=""))
    assert states(ada, *pieces) == [State.NEW]
    assert reasons(ada, *pieces) == ["has the category contextual, which is off"]


def test_what_a_memory_says_already_is_told_to_the_agents_side_alone(ada: Agent) -> None:
    remember(ada, "Ferries wait.", category="contextual", project="pilot-app")
    remember(ada, "Ferries wait.", category="technical")
    assert states(ada, piece("a")) == [State.NEW]  # in another place, they are another memory
    remember(ada, "Ferries wait.", category="contextual", project=HARBOUR)
    found = plan(ada, piece("a"))
    assert found.steps == []
    assert [(each.key, each.why) for each in found.left_out] == [("a", "has the same text as memory 3")]
    assert states(ada, piece("a"), compares=False) == [State.NEW]


def test_what_a_memory_says_that_is_revised_is_taken_from_another_file(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    assert states(ada, piece("a", "two"), piece("b", "one")) == [State.CHANGED, State.NEW]


def test_nobody_else_is_told_whether_a_file_says_what_a_memory_says(ada: Agent) -> None:
    move(ada, piece("a", "The PIN is 4711.", category="credentials", project=""))
    for guess in ("The PIN is 4710.", "The PIN is 4711."):
        assert states(ada, piece("a", guess, category="credentials", project=""), compares=False) == [State.SAME]


def test_a_file_is_the_same_from_wherever_it_is_found(ada: Agent) -> None:
    move(ada, piece("AGENTS.md", "root"), piece("sub/AGENTS.md", "sub"))
    assert [step.number for step in steps(ada, piece("AGENTS.md", "sub"), where="sub")] == [2]
    assert states(ada, piece("AGENTS.md", "sub"), where="sub") == [State.SAME]


def test_two_pieces_of_one_name_are_two(ada: Agent) -> None:
    assert move(ada, piece("a", "one"), piece("a", "two")).stored == 2
    assert states(ada, piece("a", "one"), piece("a", "two")) == [State.SAME, State.SAME]


def test_a_secret_is_in_no_tag_and_in_no_project(ada: Agent) -> None:
    token = "ghp_" + "a1B2c3D4" * 4 + "wxyz"
    [step] = steps(ada, piece(f"a.md#{token}", "Of the crane.", tags=(token, "password:hunter2xyz")))
    assert not [tag for tag in step.draft.tags if token in tag or "hunter2xyz" in tag]
    found = plan(ada, piece("a", project=token))
    assert (found.steps, len(found.left_out)) == ([], 1)
    assert token not in found.left_out[0].why


def test_more_than_can_be_looked_at_is_refused(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.transfer.reading.MAX_PIECES", 2)
    with pytest.raises(Invalid, match="more than 2 pieces"):
        unique([piece("a"), no_piece("b"), piece("c", "three")])


def test_a_tag_that_many_have_is_masked_once(ada: Agent) -> None:
    with mock.patch("memory.transfer.planning.masked", wraps=masked) as asked:
        steps(ada, *(piece("a", f"Sailing {n}.", tags=("quay",)) for n in range(50)))
    assert asked.call_count < 60  # each content, and what is in all tags


def test_a_piece_of_a_list_takes_little_to_hold(ada: Agent) -> None:
    pieces = [piece(f"a.json#{n}", f"m{n}", id="", by_words=True) for n in range(2_000)]
    tracemalloc.start()
    found = plan(ada, *pieces)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.steps) == 2_000
    assert held / 2_000 < 900  # bytes
