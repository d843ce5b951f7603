"""The vault over the API: its differences, and the path of a file, or why there is none."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.models import Agent
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.rules.talking import off
from tests.steps import PERSON, remember


@pytest.fixture
def ada(tmp_path: Path, settings: Settings, transactional_db: None) -> tuple[Agent, Caller]:
    settings.VAULT_ROOTS = [str(tmp_path)]
    made, key = lifecycle.create(
        "acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=str(tmp_path / "vault")
    )
    remember(made, "The ferry leaves at 14:30.", category="technical")
    return made, Caller(key)


def edit(agent: Agent) -> Path:
    [path] = Path(agent.vault_path).glob("common/technical/*.md")
    path.write_text(path.read_text().replace("14:30", "16:45"))
    return path


def test_a_file_that_somebody_changed_is_shown_and_kept(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    assert runtime.get("vault").json["differences"] == []
    path = edit(agent)
    [told] = runtime.get("vault").json["differences"]
    assert told == {"id": 1, "kind": "edited", "path": f"common/technical/{path.name}"}
    assert runtime.patch("memories/1", {"content": "The ferry is late."}).status == 200
    [kept] = runtime.get("vault").json["differences"]
    assert kept == {"id": 1, "kind": "copy", "path": ".discarded/common/technical/000001-found-1.md"}
    assert "16:45" in (Path(agent.vault_path) / kept["path"]).read_text()
    assert "late" in path.read_text()


def test_a_vault_that_cannot_be_read_is_told(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    vault = Path(agent.vault_path)
    vault.rename(vault.with_name("elsewhere"))
    vault.write_text("no folder")
    answer = runtime.get("vault")
    assert (answer.status, answer.codes) == (503, ["memory_file"])


def test_an_agent_without_one_has_none(ada: tuple[Agent, Caller]) -> None:
    _, key = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    none = {"path": "", "is_there": False, "is_behind": False, "fault": "", "differences": [], "unknown": 0}
    assert Caller(key).get("vault").json == none | {"next": None}
    stored = Caller(key).post("memories", {"content": "Tea is hot."}).json
    assert (stored["file"], stored["no_file"]) == (None, "no vault: run manage.py project init acme/eve --vault")


def test_it_is_compared_a_page_at_a_time(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    vault = Path(agent.vault_path)
    numbers = [1, *remember(agent, "Two.", category="technical"), *remember(agent, "Three.", category="technical")]
    for path in vault.glob("common/technical/*.md"):
        path.unlink()
    (vault / "index.md").unlink()
    (vault / "shopping.txt").write_text("tea")
    found, cursor, pages = [], "0", 0
    while cursor is not None:
        told = runtime.get(f"vault?limit=2&cursor={cursor}").json
        found += [(each["id"], each["kind"]) for each in told["differences"]]
        cursor, pages = told["next"], pages + 1
        assert told["unknown"] == (None if cursor else 1)
    assert (found, pages) == ([*((number, "missing") for number in numbers), (None, "index")], 2)
    assert runtime.get("vault?limit=0").status == 422


def test_who_compares_holds_nothing_and_waits_for_nobody(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    edit(agent)
    with (Path(agent.vault_path) / ".palimpsest").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        began = time.monotonic()
        assert [each["kind"] for each in runtime.get("vault").json["differences"]] == ["edited"]
        assert time.monotonic() - began < 0.8


def test_while_memory_is_off_its_files_are_not_told_or_touched(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    path = edit(agent)
    before = path.read_text()
    rule_changes.change(agent, PERSON, enabled=False)
    for answer in [runtime.get("vault")]:
        assert (answer.status, answer.codes, answer.json["prompt"]) == (409, ["memory_disabled"], rule_changes.QUESTION)
    assert path.read_text() == before


def test_of_a_category_that_is_off_nothing_is_told_or_touched(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    path = edit(agent)
    path.with_name("mine.md").write_text(path.read_text())
    before = path.read_text()
    off(agent, "technical")
    assert runtime.get("vault").json["differences"] == []
    assert path.read_text() == before


def test_what_is_made_is_told_with_its_file(ada: tuple[Agent, Caller]) -> None:
    _, runtime = ada
    made = [
        runtime.post("memories", {"content": "Tea is hot.", "category": "technical"}).json,
        *runtime.post("memories/batch", {"memories": [{"content": f"Fact {n}."} for n in range(3)]}).json["results"],
        runtime.post("recordings", {"prompt": "Which?", "session": "monday", "requested": True}).json,
        runtime.post("recorded-sessions/monday/end", {}).json,
    ]
    assert [each["id"] for each in made] == [2, 3, 4, 5, 6, 7]
    for each in made:
        assert f": {each['id']}\n" in Path(each["file"]).read_text()
    again = [runtime.post("memories", {"content": "Once."}, idempotency_key="one").json for _ in range(2)]
    assert again[0] == again[1]
    assert Path(again[0]["file"]).is_file()
