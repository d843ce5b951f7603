"""A text that grows too long for one memory, or becomes short enough again, and a file that gets another name."""

from __future__ import annotations

from pathlib import Path

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

pytestmark = pytest.mark.database

TIDES, QUAYS, GULLS = (f"# {name}\n\n" + f"{name} are told here. " * 200 for name in ("Tides", "Quays", "Gulls"))
SHORT, LONG = TIDES + "\n" + QUAYS, "\n".join((TIDES, QUAYS, GULLS))


def plan(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md", *, compares: bool = True) -> Plan:
    for old in folder.iterdir():
        old.unlink()
    (folder / name).write_text(text)
    with looked_at(folder) as look:
        return pieces.plan(agent, *unique(look.parts()), compares=compares)


def moved(agent: Agent, folder: Path, text: str, name: str = "AGENTS.md") -> migration.Figures:
    return migration.migrate(fresh(agent), plan(agent, folder, text, name).steps, ME)


def told(agent: Agent, *numbers: int) -> str:
    return "\n\n".join(says(agent, number).content for number in numbers)


def unblanked(text: str) -> str:
    return "".join(text.split())


def test_the_first_part_of_a_text_that_grew_takes_the_place_of_what_it_was(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, SHORT)
    done = moved(ada, tmp_path, LONG)
    assert (done.revised, done.stored) == (1, 2)
    assert unblanked(told(ada, *active(ada))) == unblanked(LONG)
    assert moved(ada, tmp_path, LONG) == migration.Figures(None)


def test_what_is_put_before_all_parts_is_one_more(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, LONG)
    fog = TIDES.replace("Tides", "Fog")
    moved(ada, tmp_path, f"{fog}\n{LONG}")
    assert sorted(says(ada, n).content[:7] for n in active(ada)) == ["# Fog\n\n", "# Gulls", "# Quays", "# Tides"]
    assert moved(ada, tmp_path, f"{fog}\n{LONG}") == migration.Figures(None)


def test_a_text_that_became_short_again_is_in_its_first_memory(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, LONG)
    done = moved(ada, tmp_path, SHORT)
    assert (done.revised, done.stored) == (1, 0)
    assert says(ada, 1).content == SHORT.rstrip()
    assert moved(ada, tmp_path, SHORT) == migration.Figures(None)


@pytest.mark.parametrize("edit", ["discarded", "revised", "redacted"])
def test_the_first_part_of_a_text_whose_memory_changed_is_left(ada: Agent, tmp_path: Path, edit: str) -> None:
    moved(ada, tmp_path, SHORT)
    if edit == "discarded":
        operations.discard(ada, [1], ME)
    elif edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    else:
        redact(ada, 1)
    found = plan(ada, tmp_path, LONG)
    left = {each.key for each in found.left_out}
    assert left == {f"AGENTS.md#{name}" for name in (("tides", "quays", "gulls") if edit == "redacted" else ("tides",))}


def test_a_part_that_was_redacted_comes_back_in_no_other(ada: Agent, tmp_path: Path) -> None:
    words = "Ferries wait for the tide and for nobody else. "
    moved(ada, tmp_path, words * 500)  # no headings: three parts, known by their place
    redact(ada, 2)
    assert moved(ada, tmp_path, "Gulls steal rope. " * 600 + words * 500).stored == 0
    assert not any("Gulls" in says(ada, n).content for n in active(ada))


def test_parts_of_a_text_are_not_told_apart_for_anybody_else(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, SHORT)
    found = plan(ada, tmp_path, LONG, compares=False)
    assert [step.state for step in found.steps] == [State.SAME] * 3


# --- another name


def test_a_file_that_got_another_name_is_said(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, LONG)
    found = plan(ada, tmp_path, LONG, ".cursorrules")
    assert [each.why for each in found.left_out] == [f"says the same as memory {n} here" for n in (1, 2, 3)]


@pytest.mark.parametrize("edit", ["discarded", "revised", "merged"])
def test_a_file_that_got_another_name_is_not_taken_again(ada: Agent, tmp_path: Path, edit: str) -> None:
    moved(ada, tmp_path, SHORT)
    if edit == "discarded":
        operations.discard(ada, [1], ME)
    elif edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    else:
        operations.consolidate(ada, [1, *pieces_of_another(ada)], "Ferries, tides and quays. " * 100, ME)
    found = plan(ada, tmp_path, SHORT, ".cursorrules")
    assert found.steps == []
    assert [each.why for each in found.left_out] == ["was taken in before, as memory 1"]


def pieces_of_another(agent: Agent) -> list[int]:
    pieces.move(agent, pieces.piece("b", "Other. " * 200))
    return [2]


def test_what_a_rollback_took_back_is_new_by_another_name(ada: Agent, tmp_path: Path) -> None:
    done = moved(ada, tmp_path, SHORT)
    roll_back(fresh(ada), What.imported(done.entry or 0), OPERATOR)
    assert moved(ada, tmp_path, SHORT, ".cursorrules").stored == 1


def test_whether_it_was_taken_in_is_told_to_nobody_else(ada: Agent, tmp_path: Path) -> None:
    moved(ada, tmp_path, SHORT)
    found = plan(ada, tmp_path, SHORT, ".cursorrules", compares=False)
    assert ([step.state for step in found.steps], found.left_out) == ([State.NEW], [])
