"""The vault over the API: its differences, and the path of a memory's file or the reason why there is none."""

import fcntl
import time
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.models import Agent
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.rules.recordings import off
from tests.steps import PERSON, remember


@pytest.fixture
def agent(tmp_path: Path, settings: Settings, transactional_db: None) -> Agent:
    settings.VAULT_ROOTS = [str(tmp_path)]
    path = str(tmp_path / "vault")
    made, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=path)
    remember(made, "The ferry leaves at 14:30.", category="technical")
    return made


@pytest.fixture
def runtime(agent: Agent) -> Caller:
    return Caller(lifecycle.issue_key(agent, OPERATOR))


@pytest.fixture
def vault(agent: Agent) -> Path:
    return Path(agent.vault_path)


@pytest.fixture
def edited(vault: Path) -> Path:
    """A file that a person has edited."""
    [path] = vault.glob("common/technical/*.md")
    path.write_text(path.read_text().replace("14:30", "16:45"))
    return path


def test_an_edited_file_is_reported_and_moved_aside(vault: Path, runtime: Caller, edited: Path) -> None:
    [difference] = runtime.get("vault").json["differences"]
    assert difference == {"id": 1, "kind": "edited", "path": f"common/technical/{edited.name}"}
    assert runtime.patch("memories/1", {"content": "The ferry is late."}).status == 200
    [copy] = runtime.get("vault").json["differences"]
    assert copy == {"id": 1, "kind": "copy", "path": ".discarded/common/technical/000001-found-1.md"}
    assert "16:45" in (vault / copy["path"]).read_text()
    assert "late" in edited.read_text()


def test_an_unreadable_vault_is_503(vault: Path, runtime: Caller) -> None:
    vault.rename(vault.with_name("elsewhere"))
    vault.write_text("no folder")
    answer = runtime.get("vault")
    assert (answer.status, answer.codes) == (503, ["memory_file"])


def test_an_agent_without_a_vault_has_no_files(agent: Agent) -> None:
    _, key = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    empty = {"path": "", "is_there": False, "is_behind": False, "fault": "", "differences": [], "unknown": 0}
    assert Caller(key).get("vault").json == empty | {"next": None}
    stored = Caller(key).post("memories", {"content": "Tea is hot."}).json
    assert (stored["file"], stored["no_file"]) == (
        None,
        "the agent has no vault. To create one, run manage.py project init acme/eve --vault",
    )


def test_differences_are_paginated(agent: Agent, vault: Path, runtime: Caller) -> None:
    assert runtime.get("vault").json["differences"] == []
    numbers = [1, *remember(agent, "Two.", category="technical"), *remember(agent, "Three.", category="technical")]
    for path in (*vault.glob("common/technical/*.md"), vault / "index.md"):
        path.unlink()
    (vault / "shopping.txt").write_text("tea")
    found, cursor, pages = [], "0", 0
    while cursor is not None:
        page = runtime.get(f"vault?limit=2&cursor={cursor}").json
        found += [(each["id"], each["kind"]) for each in page["differences"]]
        cursor, pages = page["next"], pages + 1
        assert page["unknown"] == (None if cursor else 1)
    assert (found, pages) == ([*((number, "missing") for number in numbers), (None, "index")], 2)
    assert runtime.get("vault?limit=0").status == 422


def test_a_comparison_waits_for_no_lock(vault: Path, runtime: Caller, edited: Path) -> None:
    with (vault / ".palimpsest").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        began = time.monotonic()
        assert [each["kind"] for each in runtime.get("vault").json["differences"]] == ["edited"]
        assert time.monotonic() - began < 0.8


def test_while_memory_or_a_category_is_off_its_files_are_neither_listed_nor_changed(
    agent: Agent, runtime: Caller, edited: Path
) -> None:
    before = edited.read_text()
    edited.with_name("mine.md").write_text(before)
    off(agent, "technical")
    assert runtime.get("vault").json["differences"] == []
    rule_changes.change(Agent.objects.get(pk=agent.pk), PERSON, enabled=False)
    answer = runtime.get("vault")
    assert (answer.status, answer.codes, answer.json["prompt"]) == (409, ["memory_disabled"], rule_changes.QUESTION)
    assert edited.read_text() == before


def test_a_response_names_the_file_of_each_new_memory(runtime: Caller) -> None:
    stored = [
        runtime.post("memories", {"content": "Tea is hot.", "category": "technical"}).json,
        *runtime.post("memories/batch", {"memories": [{"content": f"Fact {n}."} for n in range(3)]}).json["results"],
        runtime.post("recordings", {"prompt": "Which?", "session": "monday", "requested": True}).json,
        runtime.post("recorded-sessions/monday/end", {}).json,
    ]
    assert [each["id"] for each in stored] == [2, 3, 4, 5, 6, 7]
    for each in stored:
        assert f": {each['id']}\n" in Path(each["file"]).read_text()
    first, again = (runtime.post("memories", {"content": "Once."}, idempotency_key="one").json for _ in range(2))
    assert (first, Path(first["file"]).is_file()) == (again, True)
