"""Several people change an agent's rules at once: nobody's switch is turned on again by what somebody else wanted."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections

from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import AgentConsentRequired, NotConfirmed
from memory.models import Agent
from memory.policy import settings_document, switches
from tests.commands.calling import run
from tests.conftest import House
from tests.rules.talking import off, rules, settings
from tests.steps import ME, PERSON, SYSTEM, fresh, last_entry, problems, refused, remember, set_rule

RECORDING = "memory_rules.auto_recording.enabled"


def path_of(category: str) -> str:
    return f"memory_rules.categories.{category}.enabled"


def turn_off(agent: Agent, path: str) -> None:
    if path == settings_document.MASTER:
        rule_changes.change(fresh(agent), PERSON, enabled=False)
    else:
        set_rule(fresh(agent), PERSON, path, "false")


def is_on(agent: Agent, path: str) -> bool:
    found: Any = rule_changes.whole(fresh(agent))
    for name in path.split("."):
        found = found[name]
    return found is True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """A person at a terminal says yes, after something else happened."""

    def prepare(meanwhile: Callable[[], None]) -> None:
        def answer(*_: Any) -> str:
            meanwhile()
            return "y"

        monkeypatch.setattr("memory.management.agent_command.is_attended", lambda: True)
        monkeypatch.setattr(builtins, "input", answer)

    return prepare


# --- what was switched off while somebody was asked


def test_one_switch_is_all_that_a_yes_turns_on(ada: Agent, asked: Any) -> None:
    for other in (path_of("credentials"), RECORDING, settings_document.MASTER):
        off(ada, "topic", auto_recording__enabled=True)
        asked(partial(turn_off, ada, other))
        assert rules("enable", "--category", "topic").code == 0
        assert (is_on(ada, path_of("topic")), is_on(ada, other)) == (True, False)


def test_a_file_turns_on_what_was_agreed_to_and_nothing_else(ada: Agent, asked: Any, tmp_path: Path) -> None:
    settings(ada, auto_recording__enabled=True)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(rule_changes.whole(fresh(ada))))
    for other in (path_of("credentials"), RECORDING, settings_document.MASTER):
        off(ada, "topic", auto_recording__enabled=True)
        asked(partial(turn_off, ada, other))
        ran = rules("settings", "--file", str(file))
        assert (ran.code != 0, "try again" in ran.err, other in ran.err) == (True, True, True)
        assert (is_on(ada, path_of("topic")), is_on(ada, other)) == (False, False)


def test_a_key_that_is_called_as_a_switch_hides_none(ada: Agent) -> None:
    hiding = {RECORDING: 1, "memory_rules": {"auto_recording": {"enabled": True}}}
    assert rule_changes.turned_on(fresh(ada), Wanted(rules=hiding)) == [RECORDING]
    with refused(ada, NotConfirmed):
        rule_changes.change(fresh(ada), PERSON, rules=hiding)


def test_those_that_are_switched_off_at_once_are_all_off(transactional_db: None, house: House) -> None:
    names = ["topic", "credentials", "session", "technical"]
    together = Barrier(len(names))
    seen = fresh(house.ada)  # by each, before any of them is done

    def work(name: str) -> None:
        together.wait()
        try:
            set_rule(seen, PERSON, path_of(name), "false")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(work, names))
    assert switches.closed(fresh(house.ada)) == set(names)
    assert problems(house.ada) == []


def test_commands_that_switch_off_at_once_lose_none(transactional_db: None, house: House) -> None:
    """Each is about to write what it read before the other wrote."""
    together = Barrier(2, timeout=20)
    real = rule_changes.make

    def late(*args: Any, **values: Any) -> Any:
        together.wait()
        return real(*args, **values)

    def work(name: str) -> int:
        try:
            return run("rules", "disable", "acme/ada", "--category", name).code
        finally:
            connection.close()  # of this thread: `run` has each keep the others from being closed

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(connections, "close_all", lambda: None)  # and so it is put back, whichever of them ends last
        patch.setattr(rule_changes, "make", late)
        list(pool.map(work, ["topic", "credentials"]))
    assert switches.closed(fresh(house.ada)) == {"topic", "credentials"}


# --- who may have more shown in files


PRIVATE = "memory_rules.categories.technical.storage_location"
MASKING = "memory_rules.capture_settings.sensitive_data_masking"
WIDER = [(PRIVATE, "common"), (PRIVATE, "project"), (MASKING, "false")]


@pytest.fixture
def sealed(transactional_db: None, house: House, tmp_path: Path, settings: Any) -> Agent:
    """With a vault, in which technical memories are private."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    lifecycle.change(fresh(house.ada), PERSON, vault_path=str(tmp_path / "vault"))
    set_rule(fresh(house.ada), PERSON, PRIVATE, "private")
    remember(fresh(house.ada), "ZEBRA, and the password is Alpha-9931-x", category="technical")
    return fresh(house.ada)


def clear(agent: Agent) -> list[str]:
    files = Path(agent.vault_path).rglob("*.md")
    return [file.name for file in files if "ZEBRA" in file.read_text() or "zebra" in file.name]


def test_nobody_but_its_side_has_more_shown(sealed: Agent) -> None:
    for (path, value), side in product(WIDER, (None, PERSON, SYSTEM)):
        with refused(sealed, AgentConsentRequired):
            rule_changes.make(sealed, PERSON, Wanted(key=path, value=value), side=side)
    assert clear(sealed) == []
    assert list(Path(sealed.vault_path).rglob("000001*"))


@pytest.mark.parametrize(("path", "value"), WIDER)
def test_the_command_asks_for_the_agents_key(
    sealed: Agent, house: House, monkeypatch: pytest.MonkeyPatch, path: str, value: str
) -> None:
    for key in ("", house.bob_key):
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
        ran = rules("settings", path, value)
        assert (ran.code != 0, "PALIMPSEST_AGENT_KEY" in ran.err, path in ran.err) == (True, True, True)
        assert rules("settings", "--file", "-", "--yes", stdin=b"{}").code != 0
        assert clear(sealed) == []
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert rules("settings", path, value).code == 0
    assert last_entry(sealed).detail["agreed_by"] == house.ada_key.split("_")[1]
    assert bool(clear(sealed)) == (path == PRIVATE)


def test_nobody_is_asked_where_less_is_shown_or_there_is_no_vault(sealed: Agent, house: House, bob: Agent) -> None:
    rule_changes.make(sealed, PERSON, Wanted(key=MASKING, value="false"), side=ME)
    for path, value in ((MASKING, "true"), ("memory_rules.categories.topic.storage_location", "private")):
        set_rule(fresh(sealed), PERSON, path, value)
    rule_changes.change(fresh(sealed), PERSON, enabled=False)
    for path, value in WIDER:
        set_rule(fresh(bob), PERSON, path, value)
