"""Lists whose entries have no ids, and texts in parts: known again by what they say, wherever they stand by then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from memory.transfer import migration
from memory.transfer.reading import looked_at, unique
from memory.transfer.steps import Plan, State
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.moving import pieces
from tests.moving.test_migrating import redact
from tests.steps import ME, active, fresh, says

A, B, C, NEW = "The tide turns at six.", "Ines has the key.", "Gulls steal rope.", "Fog stops the ferry."


EACH_FORM = pytest.mark.parametrize(
    "form", ["plain texts", "plain objects", "mem0", "letta", "own", "memory-store"], indirect=True
)


@pytest.fixture(params=["plain texts", "mem0"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(folder: Path, form: str, texts: Sequence[str]) -> None:
    (folder / "notes").mkdir(exist_ok=True)
    made: dict[str, Any] = {
        "plain texts": list(texts),
        "plain objects": [{"content": text} for text in texts],
        "mem0": {"results": [{"memory": text, "user_id": "ines"} for text in texts]},
        "letta": [{"text": text, "archive_id": "a"} for text in texts],
        "memory-store": {"data": [{"path": "/a.md", "content": text} for text in texts], "has_more": False},
    }
    if form == "own":
        lines = "".join(json.dumps({"content": text, "category": "contextual"}) + "\n" for text in texts)
        (folder / "notes" / "list.jsonl").write_text(lines)
    else:
        (folder / "notes" / "list.json").write_text(json.dumps(made[form]))


def plan(agent: Agent, folder: Path, form: str, *, compares: bool = True) -> Plan:
    systems = () if form.startswith("plain") else (form,)
    with looked_at(folder, systems, ("notes",) if form.startswith("plain") else ()) as look:
        return pieces.plan(agent, *unique(look.parts()), compares=compares)


def states(agent: Agent, folder: Path, form: str, *texts: str) -> dict[str, State]:
    written(folder, form, texts)
    return {step.draft.content: step.state for step in plan(agent, folder, form).steps}


def moved(agent: Agent, folder: Path, form: str, *texts: str) -> migration.Figures:
    written(folder, form, texts)
    return migration.migrate(fresh(agent), plan(agent, folder, form).steps, ME)


def reasons(agent: Agent, folder: Path, form: str, *texts: str, compares: bool = True) -> list[str]:
    written(folder, form, texts)
    return [each.why for each in plan(agent, folder, form, compares=compares).left_out]


THERE = dict.fromkeys((A, B, C), State.SAME)


@EACH_FORM
def test_one_put_in_front_is_one_new_piece_and_no_other_moves(ada: Agent, tmp_path: Path, form: str) -> None:
    moved(ada, tmp_path, form, A, B, C)
    assert states(ada, tmp_path, form, NEW, A, B, C) == THERE | {NEW: State.NEW}
    done = moved(ada, tmp_path, form, NEW, A, B, C)
    assert (done.stored, done.revised) == (1, 0)
    assert moved(ada, tmp_path, form, C, NEW, B, A) == migration.Figures(None)


def test_one_taken_out_leaves_its_memory_and_all_others(ada: Agent, tmp_path: Path, form: str) -> None:
    moved(ada, tmp_path, form, A, B, C)
    assert moved(ada, tmp_path, form, B, C) == migration.Figures(None)
    assert len(active(ada)) == 3


def test_an_edited_entry_is_a_new_one_beside_what_it_was(ada: Agent, tmp_path: Path, form: str) -> None:
    moved(ada, tmp_path, form, A, B)
    edited = f"{B} And the lamp."
    assert states(ada, tmp_path, form, A, edited) == {A: State.SAME, edited: State.NEW}
    moved(ada, tmp_path, form, A, edited)
    assert sorted(says(ada, n).content for n in active(ada)) == sorted([A, B, edited])
    assert moved(ada, tmp_path, form, B, A) == migration.Figures(None)  # edited back


def test_what_was_discarded_does_not_come_back_by_another_place(ada: Agent, tmp_path: Path, form: str) -> None:
    moved(ada, tmp_path, form, A, B, C)
    operations.discard(ada, [2], ME)
    assert states(ada, tmp_path, form, NEW, B, C, A) == THERE | {NEW: State.NEW}


@EACH_FORM
def test_what_was_redacted_does_not_come_back_by_another_place(ada: Agent, tmp_path: Path, form: str) -> None:
    moved(ada, tmp_path, form, A, B, C)
    redact(ada, 2)
    for texts in ((A, B, C), (B, A, C), (NEW, C, B, A)):
        assert B not in states(ada, tmp_path, form, *texts)
        assert moved(ada, tmp_path, form, *texts) == migration.Figures(None)
    # What is new has no id that tells it from what was redacted, in whatever words.
    assert len([why for why in reasons(ada, tmp_path, form, NEW, C, B, A) if "was redacted" in why]) == 2


def test_what_was_taken_back_is_new_again(ada: Agent, tmp_path: Path, form: str) -> None:
    done = moved(ada, tmp_path, form, A, B)
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert moved(ada, tmp_path, form, B, A).stored == 2
    assert moved(ada, tmp_path, form, A, B) == migration.Figures(None)


@EACH_FORM
def test_nobody_else_can_try_a_guess_on_a_list(ada: Agent, tmp_path: Path, form: str) -> None:
    written(tmp_path, form, [A])
    assert [step.state for step in plan(ada, tmp_path, form, compares=False).steps] == [State.NEW]
    moved(ada, tmp_path, form, A)
    for guess in (A, B):
        written(tmp_path, form, [guess])
        assert [step.state for step in plan(ada, tmp_path, form, compares=False).steps] == [State.SAME]


def test_entries_with_ids_are_revised(ada: Agent, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for text in (A, B):
        (tmp_path / "notes" / "list.json").write_text(json.dumps([{"content": C}, {"id": "tide", "content": text}]))
        migration.migrate(fresh(ada), plan(ada, tmp_path, "plain").steps, ME)
    assert [says(ada, n).content for n in active(ada)] == [C, B]


def test_blocks_of_letta_have_their_labels_for_ids(ada: Agent, tmp_path: Path) -> None:
    blocks = [{"label": "persona", "value": A}, {"label": "human", "value": B}]
    (tmp_path / "a.af").write_text(json.dumps({"core_memory": blocks, "version": "0.5"}))
    assert migration.migrate(fresh(ada), plan(ada, tmp_path, "letta").steps, ME).stored == 2
    blocks[0]["value"] = C
    (tmp_path / "a.af").write_text(json.dumps({"core_memory": blocks[::-1], "version": "0.5"}))
    done = migration.migrate(fresh(ada), plan(ada, tmp_path, "letta").steps, ME)
    assert (done.stored, done.revised, says(ada, 1).content) == (0, 1, C)


def test_what_was_left_beside_is_not_asked_about_in_another_place(ada: Agent, tmp_path: Path, form: str) -> None:
    written(tmp_path, form, [A, B])
    migration.leave(fresh(ada), plan(ada, tmp_path, form).steps)
    assert states(ada, tmp_path, form, C, B, A) == {A: State.SAME, B: State.SAME, C: State.NEW}


def test_an_entry_of_the_same_day_put_before_another_of_a_log(ada: Agent, tmp_path: Path) -> None:
    def log(*results: str) -> Plan:
        entry = "## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** {}\n\n"
        (tmp_path / "log.md").write_text("".join(entry.format(each) for each in results))
        return plan(ada, tmp_path, "axe")

    migration.migrate(fresh(ada), log("One", "Two").steps, ME)
    redact(ada, 1)
    found = log("Three", "One", "Two")
    assert all("One" not in step.draft.content for step in found.open)
