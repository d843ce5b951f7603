"""A folder is read again after its files changed: what is recognized, wherever it stands now, and what does not come
back. Entries of lists without ids, texts in parts, files with another name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from memory.transfer import migration
from memory.transfer.planning import Plan, State
from memory.transfer.reading import detect, unique
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.moving import pieces
from tests.moving.looking import put
from tests.moving.test_migrating import redact
from tests.steps import ME, active, fresh, says

NOTHING = migration.Figures(None)


def plan(agent: Agent, folder: Path, *systems: str, compares: bool = True) -> Plan:
    with detect(folder, systems, ("notes",) if (folder / "notes").exists() and not systems else ()) as look:
        return pieces.plan(agent, *unique(look.parts()), compares=compares)


def take_in(agent: Agent, found: Plan) -> migration.Figures:
    return migration.migrate(fresh(agent), found.steps, ME)


def by_content(found: Plan) -> dict[str, State]:
    return {step.draft.content: step.state for step in found.steps}


def contents(agent: Agent) -> list[str]:
    return sorted(says(agent, number).content for number in active(agent))


# --- a text that grows too long for one memory, or becomes short enough again

TIDES, QUAYS, GULLS = (f"# {name}\n\n" + f"{name} are told here. " * 200 for name in ("Tides", "Quays", "Gulls"))
SHORT, LONG = TIDES + "\n" + QUAYS, "\n".join((TIDES, QUAYS, GULLS))


def page(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md", *, compares: bool = True) -> Plan:
    for old in folder.iterdir():
        old.unlink()
    put(folder, name, text)
    return plan(agent, folder, compares=compares)


def take_in_page(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md") -> migration.Figures:
    return take_in(agent, page(agent, folder, text, name))


def test_the_first_part_of_a_text_that_grew_takes_the_place_of_what_it_was(ada: Agent, tmp_path: Path) -> None:
    take_in_page(ada, tmp_path, SHORT)
    done = take_in_page(ada, tmp_path, LONG)
    assert (done.revised, done.stored) == (1, 2)
    assert "".join("".join(says(ada, n).content for n in active(ada)).split()) == "".join(LONG.split())
    assert take_in_page(ada, tmp_path, LONG) == NOTHING
    fog = TIDES.replace("Tides", "Fog")  # put before all parts, it is one more
    take_in_page(ada, tmp_path, f"{fog}\n{LONG}")
    assert [each[:7] for each in contents(ada)] == ["# Fog\n\n", "# Gulls", "# Quays", "# Tides"]
    assert take_in_page(ada, tmp_path, f"{fog}\n{LONG}") == NOTHING


def test_a_text_that_became_short_again_is_in_its_first_memory(ada: Agent, tmp_path: Path) -> None:
    take_in_page(ada, tmp_path, LONG)
    done = take_in_page(ada, tmp_path, SHORT)
    assert (done.revised, done.stored) == (1, 0)
    assert says(ada, 1).content == SHORT.rstrip()
    assert take_in_page(ada, tmp_path, SHORT) == NOTHING


@pytest.mark.parametrize("edit", ["discarded", "revised", "redacted"])
def test_the_first_part_of_a_text_whose_memory_changed_is_left(ada: Agent, tmp_path: Path, edit: str) -> None:
    take_in_page(ada, tmp_path, SHORT)
    if edit == "discarded":
        operations.discard(ada, [1], ME)
    elif edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    else:
        redact(ada, 1)
    left = {each.key for each in page(ada, tmp_path, LONG).left_out}
    assert left == {f"AGENTS.md#{name}" for name in (("tides", "quays", "gulls") if edit == "redacted" else ("tides",))}


def test_a_part_that_was_redacted_comes_back_in_no_other(ada: Agent, tmp_path: Path) -> None:
    words = "Ferries wait for the tide and for nobody else. "
    take_in_page(ada, tmp_path, words * 500)  # no headings: three parts, known by their place
    redact(ada, 2)
    assert take_in_page(ada, tmp_path, "Gulls steal rope. " * 600 + words * 500).stored == 0
    assert not any("Gulls" in each for each in contents(ada))


# --- another name


@pytest.mark.parametrize("edit", ["", "discarded", "revised", "merged"])
def test_a_file_that_got_another_name_is_not_taken_again(ada: Agent, tmp_path: Path, edit: str) -> None:
    take_in_page(ada, tmp_path, SHORT)
    if edit == "discarded":
        operations.discard(ada, [1], ME)
    elif edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    elif edit == "merged":
        pieces.move(ada, pieces.piece("b", "Other. " * 200))
        operations.consolidate(ada, [1, 2], "Ferries, tides and quays. " * 100, ME)
    found = page(ada, tmp_path, SHORT, ".cursorrules")
    why = "was imported before, as memory 1" if edit else "has the same text as memory 1"
    assert (found.steps, [each.why for each in found.left_out]) == ([], [why])


def test_what_a_rollback_took_back_is_new_by_another_name(ada: Agent, tmp_path: Path) -> None:
    done = take_in_page(ada, tmp_path, SHORT)
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert take_in_page(ada, tmp_path, SHORT, ".cursorrules").stored == 1


def test_parts_and_names_are_not_told_apart_for_anybody_else(ada: Agent, tmp_path: Path) -> None:
    take_in_page(ada, tmp_path, SHORT)
    found = page(ada, tmp_path, LONG, compares=False)
    assert [step.state for step in found.steps] == [State.SAME] * 3
    found = page(ada, tmp_path, SHORT, ".cursorrules", compares=False)
    assert ([step.state for step in found.steps], found.left_out) == ([State.NEW], [])


# --- entries of a list without ids: known by what they say, wherever they stand

A, B, C, NEW = "The tide turns at six.", "Ines has the key.", "Gulls steal rope.", "Fog stops the ferry."
THERE = dict.fromkeys((A, B, C), State.SAME)
FORMS = ["plain texts", "plain objects", "mem0", "letta", "own", "memory-store"]


class Listed:
    """A file with a list of texts, in the form of a system."""

    def __init__(self, agent: Agent, folder: Path, form: str = "mem0") -> None:
        self.agent, self.folder, self.form = agent, folder, form

    def plan(self, *texts: str, compares: bool = True) -> Plan:
        made: dict[str, Any] = {
            "plain texts": list(texts),
            "plain objects": [{"content": text} for text in texts],
            "mem0": {"results": [{"memory": text, "user_id": "ines"} for text in texts]},
            "letta": [{"text": text, "archive_id": "a"} for text in texts],
            "memory-store": {"data": [{"path": "/a.md", "content": text} for text in texts], "has_more": False},
        }
        if self.form == "own":
            lines = "".join(json.dumps({"content": text, "category": "contextual"}) + "\n" for text in texts)
            put(self.folder, "notes/list.jsonl", lines)
        else:
            put(self.folder, "notes/list.json", json.dumps(made[self.form]))
        systems = () if self.form.startswith("plain") else (self.form,)
        return plan(self.agent, self.folder, *systems, compares=compares)

    def states(self, *texts: str, compares: bool = True) -> Sequence[State]:
        return [step.state for step in self.plan(*texts, compares=compares).steps]

    def take_in(self, *texts: str) -> migration.Figures:
        return take_in(self.agent, self.plan(*texts))


@pytest.fixture(params=FORMS)
def each_form(request: pytest.FixtureRequest, ada: Agent, tmp_path: Path) -> Listed:
    return Listed(ada, tmp_path, request.param)


@pytest.fixture
def listed(ada: Agent, tmp_path: Path) -> Listed:
    return Listed(ada, tmp_path)


def test_one_put_in_front_is_one_new_piece_and_no_other_moves(each_form: Listed) -> None:
    assert each_form.states(A, compares=False) == [State.NEW]
    each_form.take_in(A, B, C)
    assert by_content(each_form.plan(NEW, A, B, C)) == THERE | {NEW: State.NEW}
    done = each_form.take_in(NEW, A, B, C)
    assert (done.stored, done.revised) == (1, 0)
    assert each_form.take_in(C, NEW, B, A) == NOTHING
    assert each_form.take_in(B, C) == NOTHING  # one taken out leaves its memory and all others
    assert len(active(each_form.agent)) == 4
    for guess in (A, "Ines has no key."):  # nobody else can try a guess on a list
        assert each_form.states(guess, compares=False) == [State.SAME]


def test_what_was_redacted_does_not_come_back_by_another_place(each_form: Listed) -> None:
    each_form.take_in(A, B, C)
    redact(each_form.agent, 2)
    for texts in ((A, B, C), (B, A, C), (NEW, C, B, A)):
        assert B not in by_content(each_form.plan(*texts))
        assert each_form.take_in(*texts) == NOTHING
    # What is new has no id that tells it from what was redacted, in whatever words.
    assert len([each for each in each_form.plan(NEW, C, B, A).left_out if "was redacted" in each.why]) == 2


def test_an_edited_entry_is_a_new_one_beside_what_it_was(listed: Listed) -> None:
    listed.take_in(A, B)
    edited = f"{B} And the lamp."
    assert by_content(listed.plan(A, edited)) == {A: State.SAME, edited: State.NEW}
    listed.take_in(A, edited)
    assert contents(listed.agent) == sorted([A, B, edited])
    assert listed.take_in(B, A) == NOTHING  # edited back


def test_what_was_discarded_does_not_come_back_by_another_place(listed: Listed) -> None:
    listed.take_in(A, B, C)
    operations.discard(listed.agent, [2], ME)
    assert by_content(listed.plan(NEW, B, C, A)) == THERE | {NEW: State.NEW}


def test_what_was_taken_back_is_new_again(listed: Listed) -> None:
    done = listed.take_in(A, B)
    roll_back(fresh(listed.agent), What.imported(done.entry or 0), OPERATOR)
    assert listed.take_in(B, A).stored == 2
    assert listed.take_in(A, B) == NOTHING


def test_what_was_left_beside_is_not_asked_about_in_another_place(listed: Listed) -> None:
    migration.skip(fresh(listed.agent), listed.plan(A, B).steps)
    assert by_content(listed.plan(C, B, A)) == {A: State.SAME, B: State.SAME, C: State.NEW}


def test_entries_with_ids_and_blocks_with_labels_are_revised(ada: Agent, tmp_path: Path) -> None:
    for text in (A, B):
        put(tmp_path, "notes/list.json", json.dumps([{"content": C}, {"id": "tide", "content": text}]))
        take_in(ada, plan(ada, tmp_path))
    assert contents(ada) == [C, B]
    blocks = [{"label": "persona", "value": A}, {"label": "human", "value": NEW}]
    put(tmp_path, "a.af", json.dumps({"core_memory": blocks, "version": "0.5"}))
    assert take_in(ada, plan(ada, tmp_path, "letta")).stored == 2
    blocks[0]["value"] = "Anchors rust."
    put(tmp_path, "a.af", json.dumps({"core_memory": blocks[::-1], "version": "0.5"}))
    done = take_in(ada, plan(ada, tmp_path, "letta"))
    assert (done.stored, done.revised, says(ada, 3).content) == (0, 1, "Anchors rust.")


def test_an_entry_of_the_same_day_put_before_another_of_a_log(ada: Agent, tmp_path: Path) -> None:
    def log(*results: str) -> Plan:
        entry = "## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** {}\n\n"
        put(tmp_path, "log.md", "".join(entry.format(each) for each in results))
        return plan(ada, tmp_path, "axe")

    take_in(ada, log("One", "Two"))
    redact(ada, 1)
    assert all("One" not in step.draft.content for step in log("Three", "One", "Two").open)


# --- a file that was redacted of, in another form


GONE, OTHER = "Ines lives in the lock house.", "The tide turns at six."
AN_OBJECT, A_LIST = {"content": GONE}, [{"content": GONE}, {"content": OTHER}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AN_OBJECT, A_LIST),
        (A_LIST, AN_OBJECT),
        ({"results": [{"memory": GONE}]}, [{"text": GONE}]),
        ([{"id": "a", "content": GONE}], A_LIST),
        ([{"id": "a", "content": GONE}], AN_OBJECT),
    ],
    ids=["object to list", "list to object", "another system's to list", "an id less", "an id's entry to object"],
)
@pytest.mark.parametrize("compares", [True, False], ids=["with the key", "without"])
def test_a_file_of_another_form_does_not_bring_it_back(
    ada: Agent, tmp_path: Path, before: Any, after: Any, compares: bool
) -> None:
    put(tmp_path, "notes/said.json", json.dumps(before))
    take_in(ada, plan(ada, tmp_path, compares=compares))
    redact(ada, next(number for number in active(ada) if GONE in says(ada, number).content))
    put(tmp_path, "notes/said.json", json.dumps(after))
    take_in(ada, plan(ada, tmp_path, compares=compares))
    assert not any(GONE in each for each in contents(ada))


def test_what_was_redacted_is_told_as_that(ada: Agent) -> None:
    pieces.move(ada, pieces.piece("a.md", GONE))
    redact(ada, 1)
    for text in (GONE, OTHER):
        found = pieces.plan(ada, pieces.piece("a.md", text))
        assert (found.steps, [each.why.partition(",")[0] for each in found.left_out]) == ([], ["was redacted"])
