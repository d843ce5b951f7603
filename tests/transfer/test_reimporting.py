"""A changed folder is imported again: texts in parts, renamed files, entries without ids, and redacted texts."""

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
from tests.steps import ME, active, fresh, says
from tests.transfer import pieces
from tests.transfer.folders import put
from tests.transfer.test_migrating import redact

NOTHING = migration.Figures(None)


def plan(agent: Agent, folder: Path, *systems: str, compares: bool = True) -> Plan:
    plain = ("notes",) if (folder / "notes").exists() and not systems else ()
    with detect(folder, systems, plain) as look:
        return pieces.plan(agent, *unique(look.parts()), compares=compares)


def migrate(agent: Agent, plan: Plan) -> migration.Figures:
    return migration.migrate(fresh(agent), plan.steps, ME)


def roll_back_import(agent: Agent, done: migration.Figures) -> None:
    roll_back(fresh(agent), What("import", done.entry or 0), OPERATOR)


def by_content(plan: Plan) -> dict[str, State]:
    return {step.draft.content: step.state for step in plan.steps}


def contents(agent: Agent) -> list[str]:
    return sorted(says(agent, number).content for number in active(agent))


def change(agent: Agent, edit: str) -> None:
    """Change memory 1."""
    if edit == "discarded":
        operations.discard(agent, [1], ME)
    elif edit == "revised":
        operations.revise(agent, 1, ME, content="mine")
    elif edit == "redacted":
        redact(agent, 1)
    elif edit == "merged":
        pieces.move(agent, pieces.piece("b", "Other. " * 200))
        operations.consolidate(agent, [1, 2], "Ferries, tides and quays. " * 100, ME)


TIDES, QUAYS, GULLS = (f"# {name}\n\n" + f"{name} are told here. " * 200 for name in ("Tides", "Quays", "Gulls"))
SHORT, LONG = TIDES + "\n" + QUAYS, "\n".join((TIDES, QUAYS, GULLS))


def page(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md", *, compares: bool = True) -> Plan:
    """The plan for a folder with this file alone."""
    for old in folder.iterdir():
        old.unlink()
    put(folder, name, text)
    return plan(agent, folder, compares=compares)


def migrate_page(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md") -> migration.Figures:
    return migrate(agent, page(agent, folder, text, name))


def test_the_first_part_of_a_longer_text_revises_the_memory(ada: Agent, tmp_path: Path) -> None:
    migrate_page(ada, tmp_path, SHORT)
    done = migrate_page(ada, tmp_path, LONG)
    assert (done.revised, done.stored) == (1, 2)
    assert "".join("".join(says(ada, n).content for n in active(ada)).split()) == "".join(LONG.split())
    assert migrate_page(ada, tmp_path, LONG) == NOTHING
    fog = TIDES.replace("Tides", "Fog")
    for _ in range(2):
        done = migrate_page(ada, tmp_path, f"{fog}\n{LONG}")
        assert [each[:7] for each in contents(ada)] == ["# Fog\n\n", "# Gulls", "# Quays", "# Tides"]
    assert done == NOTHING


def test_a_text_that_becomes_shorter_revises_its_first_memory(ada: Agent, tmp_path: Path) -> None:
    migrate_page(ada, tmp_path, LONG)
    done = migrate_page(ada, tmp_path, SHORT)
    assert (done.revised, done.stored, says(ada, 1).content) == (1, 0, SHORT.rstrip())
    assert migrate_page(ada, tmp_path, SHORT) == NOTHING


@pytest.mark.parametrize("edit", ["discarded", "revised", "redacted"])
def test_the_first_part_of_a_changed_memory_is_left_out(ada: Agent, tmp_path: Path, edit: str) -> None:
    migrate_page(ada, tmp_path, SHORT)
    change(ada, edit)
    left = {each.key for each in page(ada, tmp_path, LONG).left_out}
    assert left == {f"AGENTS.md#{name}" for name in (("tides", "quays", "gulls") if edit == "redacted" else ("tides",))}


def test_a_redacted_part_does_not_come_back_in_another_part(ada: Agent, tmp_path: Path) -> None:
    text = "Ferries wait for the tide and for nobody else. " * 500  # without headings: three numbered parts
    migrate_page(ada, tmp_path, text)
    redact(ada, 2)
    assert migrate_page(ada, tmp_path, "Gulls steal rope. " * 600 + text).stored == 0
    assert not any("Gulls" in each for each in contents(ada))


@pytest.mark.parametrize("edit", ["", "discarded", "revised", "merged"])
def test_a_renamed_file_is_not_imported_again(ada: Agent, tmp_path: Path, edit: str) -> None:
    migrate_page(ada, tmp_path, SHORT)
    change(ada, edit)
    found = page(ada, tmp_path, SHORT, ".cursorrules")
    is_there = edit in ("", "merged")  # beneath
    why = "has the same text as memory 1" if is_there else "was imported before, as memory 1"
    assert (found.steps, [each.why for each in found.left_out]) == ([], [why])


def test_a_renamed_file_is_new_after_a_rollback(ada: Agent, tmp_path: Path) -> None:
    roll_back_import(ada, migrate_page(ada, tmp_path, SHORT))
    assert migrate_page(ada, tmp_path, SHORT, ".cursorrules").stored == 1


def test_without_the_agents_key_a_plan_does_not_compare_texts(ada: Agent, tmp_path: Path) -> None:
    migrate_page(ada, tmp_path, SHORT)
    found = page(ada, tmp_path, LONG, compares=False)
    assert [step.state for step in found.steps] == [State.SAME] * 3
    found = page(ada, tmp_path, SHORT, ".cursorrules", compares=False)
    assert ([step.state for step in found.steps], found.left_out) == ([State.NEW], [])


A, B, C, NEW = "The tide turns at six.", "Ines has the key.", "Gulls steal rope.", "Fog stops the ferry."
SAME = dict.fromkeys((A, B, C), State.SAME)
FORMS = ["plain texts", "plain objects", "mem0", "letta", "own", "memory-store"]


class Listed:
    """A file with a list of texts, in the form of a system."""

    def __init__(self, agent: Agent, folder: Path, form: str = "mem0") -> None:
        self.agent, self.folder, self.form = agent, folder, form

    def plan(self, *texts: str, compares: bool = True) -> Plan:
        forms: dict[str, Any] = {
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
            put(self.folder, "notes/list.json", json.dumps(forms[self.form]))
        systems = () if self.form.startswith("plain") else (self.form,)
        return plan(self.agent, self.folder, *systems, compares=compares)

    def states(self, *texts: str, compares: bool = True) -> Sequence[State]:
        return [step.state for step in self.plan(*texts, compares=compares).steps]

    def migrate(self, *texts: str) -> migration.Figures:
        return migrate(self.agent, self.plan(*texts))


@pytest.fixture(params=FORMS)
def each_form(request: pytest.FixtureRequest, ada: Agent, tmp_path: Path) -> Listed:
    return Listed(ada, tmp_path, request.param)


@pytest.fixture
def listed(ada: Agent, tmp_path: Path) -> Listed:
    return Listed(ada, tmp_path)


def test_a_new_first_entry_changes_no_other_entry(each_form: Listed) -> None:
    assert each_form.states(A, compares=False) == [State.NEW]
    each_form.migrate(A, B, C)
    assert by_content(each_form.plan(NEW, A, B, C)) == SAME | {NEW: State.NEW}
    done = each_form.migrate(NEW, A, B, C)
    assert (done.stored, done.revised) == (1, 0)
    assert each_form.migrate(C, NEW, B, A) == NOTHING
    assert each_form.migrate(B, C) == NOTHING  # a removed entry changes no memory
    assert len(active(each_form.agent)) == 4
    for guess in (A, "Ines has no key."):  # without the key, a guess at an entry's text learns nothing
        assert each_form.states(guess, compares=False) == [State.SAME]


def test_a_redacted_entry_does_not_come_back_in_another_place(each_form: Listed) -> None:
    """New entries have no id that tells them from the redacted one, so they are left out, too."""
    each_form.migrate(A, B, C)
    redact(each_form.agent, 2)
    for texts in ((A, B, C), (B, A, C), (NEW, C, B, A)):
        assert B not in by_content(each_form.plan(*texts))
        assert each_form.migrate(*texts) == NOTHING
    assert len([each for each in each_form.plan(NEW, C, B, A).left_out if "was redacted" in each.why]) == 2


def test_an_edited_entry_is_a_new_memory(listed: Listed) -> None:
    listed.migrate(A, B)
    edited = f"{B} And the lamp."
    assert by_content(listed.plan(A, edited)) == {A: State.SAME, edited: State.NEW}
    listed.migrate(A, edited)
    assert contents(listed.agent) == sorted([A, B, edited])
    assert listed.migrate(B, A) == NOTHING


def test_a_discarded_entry_does_not_come_back_in_another_place(listed: Listed) -> None:
    listed.migrate(A, B, C)
    operations.discard(listed.agent, [2], ME)
    assert by_content(listed.plan(NEW, B, C, A)) == SAME | {NEW: State.NEW}


def test_entries_are_new_after_a_rollback(listed: Listed) -> None:
    roll_back_import(listed.agent, listed.migrate(A, B))
    assert listed.migrate(B, A).stored == 2
    assert listed.migrate(A, B) == NOTHING


def test_entries_left_in_place_are_recognized_in_another_place(listed: Listed) -> None:
    migration.skip(fresh(listed.agent), listed.plan(A, B).steps)
    assert by_content(listed.plan(C, B, A)) == SAME | {C: State.NEW}


def test_entries_with_ids_or_labels_are_revised(ada: Agent, tmp_path: Path) -> None:
    for text in (A, B):
        put(tmp_path, "notes/list.json", json.dumps([{"content": C}, {"id": "tide", "content": text}]))
        migrate(ada, plan(ada, tmp_path))
    assert contents(ada) == [C, B]
    blocks = [{"label": "persona", "value": A}, {"label": "human", "value": NEW}]
    put(tmp_path, "a.af", json.dumps({"core_memory": blocks, "version": "0.5"}))
    assert migrate(ada, plan(ada, tmp_path, "letta")).stored == 2
    blocks[0]["value"] = "Anchors rust."
    put(tmp_path, "a.af", json.dumps({"core_memory": blocks[::-1], "version": "0.5"}))
    done = migrate(ada, plan(ada, tmp_path, "letta"))
    assert (done.stored, done.revised, says(ada, 3).content) == (0, 1, "Anchors rust.")


def test_a_redacted_log_entry_does_not_come_back_after_another_of_its_day(ada: Agent, tmp_path: Path) -> None:
    def log(*results: str) -> Plan:
        entries = (f"## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** {result}\n\n" for result in results)
        put(tmp_path, "log.md", "".join(entries))
        return plan(ada, tmp_path, "axe")

    migrate(ada, log("One", "Two"))
    redact(ada, 1)
    assert all("One" not in step.draft.content for step in log("Three", "One", "Two").open)


GONE = "Ines lives in the lock house."
OBJECT, LIST, WITH_ID = {"content": GONE}, [{"content": GONE}, {"content": A}], [{"id": "a", "content": GONE}]
OTHER_FORMS: dict[str, tuple[Any, Any]] = {
    "object to list": (OBJECT, LIST),
    "list to object": (LIST, OBJECT),
    "another system's to list": ({"results": [{"memory": GONE}]}, [{"text": GONE}]),
    "without its id": (WITH_ID, LIST),
    "entry with an id to object": (WITH_ID, OBJECT),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize("compares", [True, False], ids=["with the key", "without"])
def test_a_redacted_text_stays_out_in_another_form(ada: Agent, tmp_path: Path, form: str, compares: bool) -> None:
    before, after = OTHER_FORMS[form]
    put(tmp_path, "notes/file.json", json.dumps(before))
    migrate(ada, plan(ada, tmp_path, compares=compares))
    redact(ada, next(number for number in active(ada) if GONE in says(ada, number).content))
    put(tmp_path, "notes/file.json", json.dumps(after))
    migrate(ada, plan(ada, tmp_path, compares=compares))
    assert not any(GONE in each for each in contents(ada))
