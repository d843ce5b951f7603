"""The vault over the API: what a person wrote into a file enters by the agent's side alone."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.errors import FileFault
from memory.models import Agent, AgentKey
from memory.vault import writer
from memory.vault.disk import Disk
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.rules.talking import off
from tests.steps import PERSON, remember, says


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


def test_what_a_person_wrote_is_shown_and_taken_in(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    assert runtime.get("vault").json["differences"] == []
    path = edit(agent)
    [told] = runtime.get("vault").json["differences"]
    assert told == {"id": 1, "kind": "edited", "path": f"common/technical/{path.name}"}
    answer = runtime.post("vault/files/1/take-in")
    assert (answer.status, answer.json) == (200, {"id": 1, "entry": 4, "file": str(path)})
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
    _, key = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    none = {"path": "", "is_there": False, "is_behind": False, "fault": "", "differences": [], "unknown": 0}
    assert Caller(key).get("vault").json == none | {"next": None}
    assert Caller(key).post("vault/files/1/take-in").status == 404


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


@pytest.mark.parametrize("deed", ["take-in", "leave"])
def test_a_vault_that_somebody_holds_keeps_nobody_waiting(ada: tuple[Agent, Caller], deed: str) -> None:
    agent, runtime = ada
    edit(agent)
    with (Path(agent.vault_path) / ".palimpsest").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        began = time.monotonic()
        answer = runtime.post(f"vault/files/1/{deed}")
        assert (answer.status, answer.codes) == (409, ["vault_busy"])
        assert "Try again" in answer.content.decode()
        stored = runtime.post("memories", {"content": "Tea is hot.", "category": "technical"})
        assert (stored.status, stored.json["file"]) == (201, None)
        assert time.monotonic() - began < 5
    assert runtime.get("vault").json["is_behind"]
    assert runtime.post(f"vault/files/1/{deed}").status == 200
    told = runtime.get("vault").json
    assert (told["is_behind"], told["fault"], told["differences"]) == (False, "", [])


def test_what_is_taken_in_stands_though_its_file_cannot_follow(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    edit(agent)
    with mock.patch("memory.vault.files.Files.finish", side_effect=FileFault("no", "no space left")):
        answer = runtime.post("vault/files/1/take-in")
    assert (answer.status, answer.json) == (200, {"id": 1, "entry": 4, "file": None})
    assert says(agent, 1).content == "The ferry leaves at 16:45."
    told = runtime.get("vault").json
    assert (told["is_behind"], told["fault"]) == (True, "no space left")
    writer.catch_up()
    told = runtime.get("vault").json
    assert (told["is_behind"], told["fault"], told["differences"]) == (False, "", [])


def test_what_is_left_stands_though_its_file_cannot_follow(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    edit(agent)
    with mock.patch("memory.vault.files.Files.finish", side_effect=FileFault("no", "no space left")):
        answer = runtime.post("vault/files/1/leave")
    assert (answer.status, answer.json["file"]) == (200, None)
    assert [each["kind"] for each in runtime.get("vault").json["differences"]] == ["missing"]


def test_a_key_that_ended_while_the_vault_was_held_decides_nothing(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    path = edit(agent)
    before = path.read_text()
    opened = writer.opened

    @contextmanager
    def ended_meanwhile(agent: Agent) -> Iterator[Disk]:
        with opened(agent) as disk:
            AgentKey.objects.filter(agent=agent).update(revoked_at=timezone.now())
            yield disk

    with mock.patch("memory.vault.writer.opened", ended_meanwhile):
        assert runtime.post("vault/files/1/leave").status == 401
    assert path.read_text() == before


def test_while_memory_is_off_its_files_are_not_told_or_touched(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    path = edit(agent)
    before = path.read_text()
    rule_changes.change(agent, PERSON, enabled=False)
    for answer in (runtime.get("vault"), runtime.post("vault/files/1/take-in"), runtime.post("vault/files/1/leave")):
        assert (answer.status, answer.codes, answer.json["prompt"]) == (409, ["memory_disabled"], rule_changes.QUESTION)
    assert path.read_text() == before


def test_of_a_category_that_is_off_nothing_is_told_or_touched(ada: tuple[Agent, Caller]) -> None:
    agent, runtime = ada
    path = edit(agent)
    path.with_name("mine.md").write_text(path.read_text())
    before = path.read_text()
    off(agent, "technical")
    assert runtime.get("vault").json["differences"] == []
    for answer in (runtime.post("vault/files/1/take-in"), runtime.post("vault/files/1/leave")):
        assert (answer.status, answer.codes) == (409, ["category_disabled"])
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
