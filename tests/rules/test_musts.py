"""What seed 004 says must, never and always be, of switches, consent and neutrality (tests/rules/musts.md has the
whole table)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured

from memory.access import tenants
from memory.agents import rule_changes
from memory.markdown import sections
from memory.masking.neutral import neutral
from memory.models import Agent, Memory, RecordedSession
from memory.policy import settings_document, switches
from memory.policy.categories import SCOPES
from memory.recording import automatic
from memory.writing import operations
from refinement import gc_reports, tasks
from refinement.models import GcReport, RefinementSession
from tests import refining
from tests.api.calling import Answer, Caller
from tests.commands.calling import Ran, run
from tests.conftest import House
from tests.rules.talking import PROMPT, at_a_terminal, of_category, off, rules, said, sessions, settings, talk
from tests.rules.test_cleanup import DAYS, NOW, ago
from tests.steps import ME, PERSON, active, fresh, remember, state

SAID = "ZEBRA"
ON_START = "Memory rules are currently disabled. Enable memory functionality? (y/n)"  # the seed's
ON_A_DEED = "Memory functionality is currently disabled. Would you like to enable it? (y/n)"
LINE = {"content": "x", "category": "technical"}
PATHS = {"master": settings_document.MASTER, "category": "memory_rules.categories.technical.enabled"}


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def ada(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """With something for every road to take: three technical memories that are overdue, the third discarded, and a
    talk that goes on, a report of gc's; due, and her key at hand."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    remember(house.ada, *[f"{SAID} at four"] * 2, f"{SAID} at six", category="technical", origin=ago(100))
    operations.discard(house.ada, [3], ME)
    talk(house.ada, SAID, SAID, session="monday")
    gc_reports.keep(fresh(house.ada), SAID, model="openai/gpt", entries=1)
    refining.change(house.ada, due_at=NOW)
    return fresh(house.ada)


def close(agent: Agent, *, master: bool = True, category: bool = True) -> Agent:
    off(agent, "technical") if category else None
    rule_changes.change(fresh(agent), PERSON, enabled=not master)
    return fresh(agent)


def as_it_stands() -> int:
    """The version of the first memory, which may be cleaned up."""
    return Memory.objects.get(agent__tenant__slug="acme", agent__slug="ada", number=1).version


# --- off is off, whoever asks, and by whichever road

API: dict[str, Callable[[Caller], Answer]] = {
    "POST memories": lambda ask: ask.post("memories", LINE),
    "POST memories/batch": lambda ask: ask.post("memories/batch", {"memories": [LINE]}),
    "PATCH memories": lambda ask: ask.patch("memories/1", {"content": "x"}),
    "DELETE memories": lambda ask: ask.delete("memories/1"),
    "POST restore": lambda ask: ask.post("memories/3/restore"),
    "POST search": lambda ask: ask.post("memories/search", {"q": SAID}),
    "GET memories": lambda ask: ask.get("memories"),
    "GET memories/1": lambda ask: ask.get("memories/1"),
    "GET context": lambda ask: ask.get("context"),
    "POST retrieve": lambda ask: ask.post("retrieve", {"query": SAID}),
    "POST runs": lambda ask: ask.post("runs", {"task": "Brew", "result": "tea"}),
    "GET gc-reports": lambda ask: ask.get("gc-reports"),
    "GET gc-reports/1": lambda ask: ask.get("gc-reports/1"),
    "GET gc-reports/2": lambda ask: ask.get("gc-reports/2"),
    "POST recordings": lambda ask: ask.post("recordings", {"prompt": PROMPT, "requested": True}),
    "POST recordings, automatic": lambda ask: ask.post("recordings", {"prompt": PROMPT}),
    "POST recorded-sessions": lambda ask: ask.post("recorded-sessions/monday/end", {}),
    "GET cleanup": lambda ask: ask.get("cleanup"),
    "POST cleanup": lambda ask: ask.post(
        "cleanup", {"discard": [1], "keep": [2], "expect": [{"id": 1, "version": as_it_stands()}]}
    ),
    "POST refinement-sessions": lambda ask: ask.post("refinement-sessions", {"driver": "runtime"}),
    "POST import": lambda ask: ask.post("import", raw=json.dumps(LINE).encode() + b"\n", kind="application/x-ndjson"),
    "PATCH rules": lambda ask: ask.patch("rules", {"memory_rules": {"enabled": True}}),
    "PATCH agent": lambda ask: ask.patch("agent", {"memory_enabled": True}),
}
COMMANDS: dict[str, Callable[[], Ran]] = {
    "store": lambda: rules("store", "x", "--category", "technical"),
    "record": lambda: rules("record", "--prompt", PROMPT),
    "record --automatic": lambda: rules("record", "--prompt", PROMPT, "--automatic"),
    "session begin": lambda: rules("session", "begin", "friday"),
    "topic": lambda: rules("topic", "Tea"),
    "retrieve": lambda: rules("retrieve", SAID),
    "cleanup": lambda: rules("cleanup", "--discard", f"1@{as_it_stands()}"),
    "init": lambda: rules("init"),
    "enable": lambda: rules("enable"),
    "settings": lambda: rules("settings", settings_document.MASTER, "true"),
    "import_memories": lambda: run("import_memories", "acme/ada", "-", stdin=json.dumps(LINE).encode()),
    "analyze_git": lambda: rules("analyze_git"),
    "migrate": lambda: rules("migrate", "--yes"),
    "log_run": lambda: run("log_run", "acme/ada", "--task", "Brew", "--result", "tea"),
    "gc": lambda: run("gc", "ada", "--model", "ollama/x"),
    "refine": lambda: run("refine", "acme/ada"),
    "workers": lambda: (tasks.sweep(), tasks.close_stale(), run("refine", "--all-due"))[-1],
}


SILENT = ("workers",)  # nobody to tell
OF_THE_SWITCH = ("emory is off", "memory_off", "stays off", "is set by enable")
OF_THE_SWITCH += ("The input is not a terminal", "persons_only", "unknown_field", "does not have memory enabled")


def there_is() -> list[Any]:
    kept = (Memory, RecordedSession, RefinementSession, GcReport)
    return [list(each.objects.order_by("pk").values()) for each in kept]


def done(road: str, ada_key: str) -> str:
    """What came of it, as whoever asked sees it."""
    if road in API:
        return API[road](Caller(ada_key)).content.decode()
    ran = COMMANDS[road]()
    return ran.out + ran.err


@pytest.mark.parametrize("roads", [API, COMMANDS], ids=["API", "commands"])
def test_nothing_turns_memory_on_by_itself(
    ada: Agent, house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roads: Mapping[str, Any]
) -> None:
    """No caller turns on memory, a category or another setting: the agent, its tenant, another agent, a stranger."""
    monkeypatch.chdir(tmp_path)
    settings(ada, **{f"categories__{name}__enabled": False for name in SCOPES})
    keys = (house.ada_key, tenants.issue_key("acme"), house.bob_key, "")
    for is_on in (False, True):
        rule_changes.change(fresh(ada), PERSON, enabled=is_on)
        before = fresh(ada)
        for road, key in product(roads, keys):
            monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
            done(road, key)
            now = fresh(ada)
            assert (now.memory_enabled, now.rules) == (is_on, before.rules), road


def test_every_operation_asks_the_switch_before_anything_else(ada: Agent, house: House) -> None:
    """Nothing is written, and nothing is told of what there is."""
    close(ada, category=False)
    before = there_is()
    for road in (*API, *COMMANDS):
        told = done(road, house.ada_key)
        assert there_is() == before, road
        assert SAID not in told
        assert road in SILENT or any(word in told for word in OF_THE_SWITCH), told


def test_a_category_that_is_off_stays_off_and_takes_nothing_in(ada: Agent, house: House) -> None:
    before = close(ada, master=False)
    for road in ("POST memories", "store", "import_memories", "POST import"):
        done(road, house.ada_key)
        assert (active(ada), fresh(ada).rules) == ([1, 2, 4], before.rules)


# --- asking a person


def test_init_asks_and_ends_there_where_it_is_declined(ada: Agent) -> None:
    close(ada)
    before = state(ada)
    for answer in ("n\n", "\n", "", "Y E S\n"):
        ran = at_a_terminal(answer, "init")
        assert ran.code == 0
        assert ran.err.count(ON_START) == (2 if answer == "Y E S\n" else 1)  # what is no answer is asked again
        assert ran.out.splitlines()[1:] == [" 2. Switch: memory stays off; nothing was done"]
        assert state(ada) == before
    told = rules("init", "--json").json
    assert (told["initialized"], [each["step"] for each in told["steps"]]) == (False, ["Settings", "Switch"])


def test_init_goes_on_once_somebody_agrees(ada: Agent) -> None:
    close(ada, category=False)
    ran = at_a_terminal("y\n", "init")
    assert (ran.code, fresh(ada).memory_enabled) == (0, True)
    assert [line[:3].strip() for line in ran.out.splitlines()] == [f"{step}." for step in range(1, 13)]


@pytest.mark.parametrize("closed", PATHS)
def test_store_asks_and_does_nothing_where_it_is_declined(ada: Agent, closed: str) -> None:
    close(ada, master=closed == "master", category=closed == "category")
    before = state(ada)
    for answer in ("n\n", "\n", "perhaps\n"):
        ran = at_a_terminal(answer, "store", "x", "--category", "technical")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.count(ON_A_DEED) == (2 if answer == "perhaps\n" else 1)  # what is no answer is asked again
        assert rule_changes.GOOD_FOR in ran.err
        assert state(ada) == before


@pytest.mark.parametrize("closed", PATHS)
def test_store_fails_where_nobody_can_be_asked(ada: Agent, closed: str) -> None:
    close(ada, master=closed == "master", category=closed == "category")
    before = state(ada)
    ran = rules("store", "x", "--category", "technical")
    assert (ran.code, ran.out) == (1, "")
    assert "The input is not a terminal" in ran.err
    assert state(ada) == before


@pytest.mark.parametrize("closed", PATHS)
def test_store_goes_on_once_somebody_agrees(ada: Agent, closed: str) -> None:
    close(ada, master=closed == "master", category=closed == "category")
    ran = at_a_terminal("y\n", "store", "x", "--category", "technical")
    [told] = [line for line in ran.err.splitlines() if line.startswith("To turn on: ")]
    assert told.endswith(f"({PATHS[closed]})")
    assert ran.json["id"] == 5
    assert (fresh(ada).memory_enabled, switches.closed(fresh(ada))) == (True, frozenset())


# --- and not asking


@pytest.mark.parametrize("reason", ["memory_off", "category_off", "recording_off"])
def test_automatic_recording_is_skipped_without_a_word(ada: Agent, reason: str) -> None:
    """Somebody is at the terminal, and would say yes."""
    settings(ada, auto_recording__enabled=reason != "recording_off")
    if reason == "category_off":
        off(ada, "user_interaction", auto_recording__enabled=True)
    rule_changes.change(fresh(ada), PERSON, enabled=reason != "memory_off")
    before = state(ada)
    ran = at_a_terminal("y\ny\n", "record", "--prompt", PROMPT, "--automatic", "--topic", "Tea")
    assert (ran.json["skipped"], ran.json["id"], ran.err) == (reason, None, "")
    assert (state(ada), len(sessions(ada))) == (before, 1)


def test_storing_inside_other_work_is_skipped_without_a_word(ada: Agent) -> None:
    """A recording's topic, and the session memory of the talk before it: both categories are off."""
    given = {f"categories__{name}__enabled": False for name in ("topic", "session")}
    before = settings(ada, **given)
    for name in ("tuesday", "friday"):
        ran = at_a_terminal("y\ny\n", "record", "--prompt", PROMPT, "--topic", "Tea", "--session", name)
        only = "The memory is stored, and has no file: no vault: run manage.py project init acme/ada --vault.\n"
        assert (ran.code, ran.err, ran.json["session"]) == (0, only, name)
    assert len(of_category(ada, "user_interaction")) == 3
    assert (of_category(ada, "topic"), of_category(ada, "session"), fresh(ada).rules) == ([], [], before.rules)


# --- no automatic deletion


@pytest.mark.parametrize("consent", [True, False])
def test_what_is_overdue_stays_whatever_workers_do(ada: Agent, consent: bool) -> None:
    """Ten years old, in every category, for as many turns as there are in two days; `require_user_consent` or not."""
    refining.change(ada, due_at=None)  # a refinement merges, which is another matter
    for category in DAYS:
        remember(ada, f"about {category}", category=category, origin=ago(3_650))
    settings(ada, cleanup_guidance__require_user_consent=consent)
    before = list(Memory.objects.values())
    tasks.sweep()
    tasks.close_stale()
    for turn in range(2 * 24 * 12):
        automatic.send_notices(NOW + timedelta(minutes=5 * turn))
    assert list(Memory.objects.exclude(source="system").values()) == before
    assert Memory.objects.filter(source="system").count() == 1  # who looks is told


# --- framework neutrality

BRAND = "Generated with [Claude Code](https://claude.com/claude-code)"
LICENCE = "<!-- LICENSE: Copyright (c) 2025 Jo Doe. Licensed under the MIT License (see LICENSE file). -->"


def test_what_is_stored_is_without_brand_and_licence(ada: Agent) -> None:
    told = ("--context", BRAND, "--understanding", f"{LICENCE}\nTabs.")
    ran = [rules("store", f"Tabs, not spaces.\n{BRAND}\n{LICENCE}"), rules("store", *told)]
    plain, structured = [each.json["id"] for each in ran]
    assert said(ada, plain) == "Tabs, not spaces."
    assert sections.split(said(ada, structured), "behavioral") == {"Understanding": "Tabs."}


def test_no_template_has_a_brand_or_a_licence() -> None:
    templates = sorted((Path(configured.BASE_DIR) / "templates" / "memory_rules").glob("*.md"))
    assert len(templates) == 6
    for text in (template.read_text() for template in templates):
        assert neutral(text) == text
        for word in ("Agentic Rules", "Framework", "Palimpsest", "Copyright", "License", "Claude", "Cursor", "Copilot"):
            assert word.casefold() not in text.casefold()
