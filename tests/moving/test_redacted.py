"""What was redacted comes back by no further migration of its file: whatever form the file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.transfer import migration
from memory.transfer.reading import looked_at, unique
from memory.transfer.steps import Plan
from tests.moving import pieces
from tests.moving.pieces import move, piece
from tests.moving.test_migrating import redact
from tests.steps import ME, active, fresh, says

GONE, OTHER = "Ines lives in the lock house.", "The tide turns at six."


def plan(agent: Agent, folder: Path, said: Any, *, compares: bool = True) -> Plan:
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "said.json").write_text(json.dumps(said))
    with looked_at(folder, (), ("notes",)) as look:
        return pieces.plan(agent, *unique(look.parts()), compares=compares)


def moved(agent: Agent, folder: Path, said: Any, *, compares: bool = True) -> migration.Figures:
    steps = plan(agent, folder, said, compares=compares).steps
    return migration.migrate(fresh(agent), steps, ME)


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
    moved(ada, tmp_path, before)
    redact(ada, next(number for number in active(ada) if GONE in says(ada, number).content))
    moved(ada, tmp_path, after, compares=compares)
    assert not any(GONE in says(ada, number).content for number in active(ada))


def test_what_was_redacted_is_told_as_that(ada: Agent) -> None:
    move(ada, piece("a.md", GONE))
    redact(ada, 1)
    for text in (GONE, OTHER):
        found = pieces.plan(ada, piece("a.md", text))
        assert found.steps == []
        assert [each.why.partition(",")[0] for each in found.left_out] == ["was redacted"]
