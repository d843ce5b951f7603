"""The vault over the API: what a person wrote into a file enters by the agent's side alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory import agents
from memory.models import Agent
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.steps import remember, says


@pytest.fixture
def ada(tmp_path: Path, settings: Settings, transactional_db: None) -> tuple[Agent, Caller]:
    settings.VAULT_ROOTS = [str(tmp_path)]
    made, key = agents.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=str(tmp_path / "vault"))
    remember(made, "The ferry leaves at 14:30.", category="technical")
    return made, Caller(key)


def edit(agent: Agent) -> Path:
    [path] = Path(agent.vault_path).glob("common/technical/*.md")
    path.write_text(path.read_text().replace("14:30", "16:45"))
    return path


def test_what_a_person_wrote_is_shown_and_taken_in(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    assert runtime.get("vault").json["differences"] == []
    path = edit(agent)
    [told] = runtime.get("vault").json["differences"]
    assert told == {"id": 1, "kind": "edited", "path": f"common/technical/{path.name}"}
    answer = runtime.post("vault/files/1/take-in")
    assert (answer.status, answer.json) == (200, {"id": 1, "entry": 4})
    assert says(agent, 1).content == "The ferry leaves at 16:45."
    assert runtime.get("vault").json["differences"] == []
    assert runtime.post("vault/files/1/take-in").status == 404


def test_it_is_left_and_kept(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    edit(agent)
    answer = runtime.post("vault/files/1/leave")
    assert answer.status == 200
    assert "16:45" in (Path(agent.vault_path) / answer.json["kept"]).read_text()
    assert says(agent, 1).content == "The ferry leaves at 14:30."


def test_a_vault_that_cannot_be_read_is_told(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    vault = Path(agent.vault_path)
    vault.rename(vault.with_name("elsewhere"))
    vault.write_text("no folder")
    answer = runtime.get("vault")
    assert (answer.status, answer.codes) == (503, ["memory_file"])


def test_an_agent_without_one_has_none(ada: tuple[Agent, Caller]) -> None:
    _, key = agents.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    none = {"path": "", "is_behind": False, "fault": "", "differences": []}
    assert Caller(key).get("vault").json == none
    assert Caller(key).post("vault/files/1/take-in").status == 404
