"""Concurrent changes of rules turn nothing on that nobody agreed to. Weaker protection needs the agent's key."""

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
from tests.rules.recordings import off, rules, settings
from tests.steps import ME, PERSON, SYSTEM, fresh, last_entry, problems, refused, remember, set_rule

CATEGORY = "memory_rules.categories.{}.enabled".format
RECORDING = "memory_rules.auto_recording.enabled"
OTHERS = (CATEGORY("credentials"), RECORDING, settings_document.MASTER)


def turn_off(agent: Agent, path: str) -> None:
    if path == settings_document.MASTER:
        rule_changes.change(fresh(agent), PERSON, enabled=False)
    else:
        set_rule(fresh(agent), PERSON, path, "false")


def is_on(path: str) -> bool:
    return rules("settings", path).out == "true\n"


@pytest.fixture
def answer_yes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """A person at a terminal answers yes, after this function ran."""
    monkeypatch.setattr("memory.management.agent_command.is_attended", lambda: True)
    return lambda meanwhile: monkeypatch.setattr(builtins, "input", lambda *_: meanwhile() or "y")


def test_a_yes_turns_on_one_switch_only(ada: Agent, answer_yes: Any) -> None:
    for other in OTHERS:
        off(ada, "topic", auto_recording__enabled=True)
        answer_yes(partial(turn_off, ada, other))
        assert rules("enable", "--category", "topic").code == 0
        assert (is_on(CATEGORY("topic")), is_on(other)) == (True, False)


def test_a_file_is_refused_if_another_switch_was_turned_off_meanwhile(
    ada: Agent, answer_yes: Any, tmp_path: Path
) -> None:
    settings(ada, auto_recording__enabled=True)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(rule_changes.whole(fresh(ada))))
    for other in OTHERS:
        off(ada, "topic", auto_recording__enabled=True)
        answer_yes(partial(turn_off, ada, other))
        ran = rules("settings", "--file", str(file))
        assert (ran.code != 0, "try again" in ran.err, other in ran.err) == (True, True, True)
        assert (is_on(CATEGORY("topic")), is_on(other)) == (False, False)


def test_an_unknown_key_named_like_a_switch_does_not_hide_it(ada: Agent) -> None:
    hiding = {RECORDING: 1, "memory_rules": {"auto_recording": {"enabled": True}}}
    assert rule_changes.turned_on(fresh(ada), Wanted(rules=hiding)) == [RECORDING]
    with refused(ada, NotConfirmed):
        rule_changes.change(fresh(ada), PERSON, rules=hiding)


def test_concurrent_changes_turn_off_all_their_switches(transactional_db: None, house: House) -> None:
    names = ["topic", "credentials", "session", "technical"]
    together = Barrier(len(names))
    stale = fresh(house.ada)  # each thread read the row before another changed it

    def work(name: str) -> None:
        together.wait()
        try:
            set_rule(stale, PERSON, CATEGORY(name), "false")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(work, names))
    assert switches.closed(fresh(house.ada)) == set(names)
    assert problems(house.ada) == []


def test_concurrent_commands_turn_off_all_their_switches(transactional_db: None, house: House) -> None:
    together = Barrier(2, timeout=20)
    make = rule_changes.make

    def late(*args: Any, **values: Any) -> Any:
        together.wait()  # each command has read the rules before another writes
        return make(*args, **values)

    def work(name: str) -> int:
        try:
            return run("rules", "disable", "acme/ada", "--category", name).code
        finally:
            connection.close()  # of this thread only; `run` patches close_all

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(connections, "close_all", lambda: None)  # restored here, whichever thread ends last
        patch.setattr(rule_changes, "make", late)
        list(pool.map(work, ["topic", "credentials"]))
    assert switches.closed(fresh(house.ada)) == {"topic", "credentials"}


LOCATION = "memory_rules.categories.technical.storage_location"
MASKING = "memory_rules.capture_settings.sensitive_data_masking"
WEAKER = [(LOCATION, "common"), (LOCATION, "project"), (MASKING, "false")]


@pytest.fixture
def sealed(transactional_db: None, house: House, tmp_path: Path, settings: Any) -> Agent:
    """An agent with a vault in which technical memories are private."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    lifecycle.change(fresh(house.ada), PERSON, vault_path=str(tmp_path / "vault"))
    set_rule(fresh(house.ada), PERSON, LOCATION, "private")
    remember(fresh(house.ada), "ZEBRA, and the password is Alpha-9931-x", category="technical")
    return fresh(house.ada)


def readable_files(agent: Agent) -> list[str]:
    files = Path(agent.vault_path).rglob("*.md")
    return [file.name for file in files if "ZEBRA" in file.read_text() or "zebra" in file.name]


def test_only_the_agents_side_agrees_to_weaker_protection(sealed: Agent) -> None:
    for (path, value), side in product(WEAKER, (None, PERSON, SYSTEM)):
        with refused(sealed, AgentConsentRequired):
            rule_changes.make(sealed, PERSON, Wanted(key=path, value=value), side=side)
    assert readable_files(sealed) == []
    assert list(Path(sealed.vault_path).rglob("000001*"))


def test_a_runtime_does_not_agree_to_weaker_protection_if_only_the_steward_may(sealed: Agent) -> None:
    lifecycle.change(sealed, PERSON, steward="sue@acme.test", is_steward_only=True)
    for path, value in WEAKER:
        with refused(fresh(sealed), AgentConsentRequired):
            rule_changes.make(fresh(sealed), PERSON, Wanted(key=path, value=value), side=ME)


def test_weaker_protection_needs_the_agents_side_before_there_is_a_vault(house: House) -> None:
    set_rule(fresh(house.ada), PERSON, LOCATION, "private")
    for path, value in WEAKER:
        with refused(fresh(house.ada), AgentConsentRequired):
            rule_changes.make(fresh(house.ada), PERSON, Wanted(key=path, value=value))


@pytest.mark.parametrize(("path", "value"), WEAKER)
def test_the_command_needs_the_agents_key_for_weaker_protection(
    sealed: Agent, house: House, monkeypatch: pytest.MonkeyPatch, path: str, value: str
) -> None:
    for key in ("", house.bob_key):
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
        ran = rules("settings", path, value)
        assert (ran.code != 0, "PALIMPSEST_AGENT_KEY" in ran.err, path in ran.err) == (True, True, True)
        assert rules("settings", "--file", "-", "--yes", stdin=b"{}").code != 0
        assert readable_files(sealed) == []
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert rules("settings", path, value).code == 0
    assert last_entry(sealed).detail["agreed_by"] == house.ada_key.split("_")[1]
    assert bool(readable_files(sealed)) == (path == LOCATION)


def test_stronger_protection_needs_no_consent(sealed: Agent) -> None:
    rule_changes.make(sealed, PERSON, Wanted(key=MASKING, value="false"), side=ME)
    for path, value in ((MASKING, "true"), ("memory_rules.categories.topic.storage_location", "private")):
        set_rule(fresh(sealed), PERSON, path, value)
    rule_changes.change(fresh(sealed), PERSON, enabled=False)
