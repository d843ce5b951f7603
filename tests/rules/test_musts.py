"""What seed 004 requires of switches, consent, retention and neutrality. The whole table is in tests/rules/musts.md."""

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
from memory.models import Agent, Memory, Recall, RecordedSession
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
from tests.rules.recordings import PROMPT, at_a_terminal, of_category, off, rules, sessions, settings, talk, text_of
from tests.rules.test_cleanup import DAYS, NOW, ago
from tests.steps import ME, PERSON, fresh, remember, state

CONTENT = "ZEBRA"
QUESTION_OF_INIT = "Memory rules are currently disabled. Enable memory functionality? (y/n)"  # from the seed
QUESTION_OF_STORE = "Memory functionality is currently disabled. Would you like to enable it? (y/n)"
NEW = {"content": "x", "category": "technical"}
LINE = json.dumps(NEW).encode() + b"\n"
STORE = ("store", "x", "--category", "technical")
PATHS = {"master": settings_document.MASTER, "category": "memory_rules.categories.technical.enabled"}


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def ada(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with something for every operation: overdue memories 1 and 2, the discarded 3, an open recorded
    session, a gc report and a refinement that is due. Its key is in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    remember(house.ada, *[f"{CONTENT} at four"] * 2, f"{CONTENT} at six", category="technical", origin=ago(100))
    operations.discard(house.ada, [3], ME)
    talk(house.ada, CONTENT, CONTENT, session="monday")
    gc_reports.keep(fresh(house.ada), CONTENT, model="openai/gpt", entries=1)
    refining.change(house.ada, due_at=NOW)
    return fresh(house.ada)


def close(agent: Agent, which: str = "both") -> Agent:
    if which != "master":
        off(agent, "technical")
    rule_changes.change(fresh(agent), PERSON, enabled=which == "category")
    return fresh(agent)


def version_of_1() -> int:
    return Memory.objects.get(agent__tenant__slug="acme", agent__slug="ada", number=1).version


API: dict[str, Any] = {  # the request → its body
    **dict.fromkeys(("GET memories", "GET memories/1", "GET context", "GET cleanup", "DELETE memories/1")),
    **dict.fromkeys(("GET gc-reports", "GET gc-reports/1", "GET gc-reports/2", "POST memories/3/restore")),
    "POST memories": NEW,
    "POST memories/batch": {"memories": [NEW]},
    "PATCH memories/1": {"content": "x"},
    "POST memories/search": {"q": CONTENT},
    "POST retrieve": {"query": CONTENT},
    "POST runs": {"task": "Brew", "result": "tea"},
    "POST recordings": {"prompt": PROMPT, "requested": True},
    "POST recordings (automatic)": {"prompt": PROMPT},
    "POST recorded-sessions/monday/end": {},
    "POST cleanup": {"discard": [1], "keep": [2]},
    "POST refinement-sessions": {"driver": "runtime"},
    "POST import": LINE,
    "PATCH rules": {"memory_rules": {"enabled": True}},
    "PATCH agent": {"memory_enabled": True},
}
COMMANDS: dict[str, Callable[[], Ran]] = {
    "store": lambda: rules(*STORE),
    "record": lambda: rules("record", "--prompt", PROMPT),
    "record --automatic": lambda: rules("record", "--prompt", PROMPT, "--automatic"),
    "session begin": lambda: rules("session", "begin", "friday"),
    "topic": lambda: rules("topic", "Tea"),
    "retrieve": lambda: rules("retrieve", CONTENT),
    "cleanup": lambda: rules("cleanup", "--discard", f"1@{version_of_1()}"),
    "init": lambda: rules("init"),
    "enable": lambda: rules("enable"),
    "settings": lambda: rules("settings", settings_document.MASTER, "true"),
    "import_memories": lambda: run("import_memories", "acme/ada", "-", stdin=LINE),
    "analyze_git": lambda: rules("analyze_git", "--yes"),
    "migrate": lambda: rules("migrate", "--yes"),
    "log_run": lambda: run("log_run", "acme/ada", "--task", "Brew", "--result", "tea"),
    "gc": lambda: run("gc", "ada", "--model", "ollama/x"),
    "refine": lambda: run("refine", "acme/ada"),
    "workers": lambda: (tasks.sweep(), tasks.close_stale(), run("refine", "--all-due"))[-1],
}

SILENT = ("workers",)  # these have no output
REFUSALS = ("emory is off", "memory_off", "stays off", "is set by the commands enable")
REFUSALS += ("The input is not a terminal", "persons_only", "unknown_field", "does not have memory enabled")


def rows() -> list[Any]:
    tables = (Memory, Recall, RecordedSession, RefinementSession, GcReport)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def request(name: str, key: str) -> str:
    ask, (method, path), body = Caller(key), name.split()[:2], API[name]
    if isinstance(body, bytes):
        return ask.post(path, raw=body, kind="application/x-ndjson").content.decode()
    if path == "cleanup" and body:
        body = body | {"expect": [{"id": 1, "version": version_of_1()}]}
    arguments = [path] if body is None else [path, body]
    response: Answer = getattr(ask, method.lower())(*arguments)
    return response.content.decode()


def response(name: str, key: str) -> str:
    """Perform the operation. Returns what its caller sees."""
    if name in API:
        return request(name, key)
    ran = COMMANDS[name]()
    return ran.out + ran.err


@pytest.mark.parametrize("operations", [API, COMMANDS], ids=["API", "commands"])
def test_nothing_turns_memory_on_by_itself(
    ada: Agent, house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, operations: Mapping[str, Any]
) -> None:
    """No caller turns on memory, a category or another setting: the agent, its tenant, another agent, a stranger."""
    monkeypatch.chdir(tmp_path)
    settings(ada, **{f"categories__{name}__enabled": False for name in SCOPES})
    keys = (house.ada_key, tenants.issue_key("acme"), house.bob_key, "")
    for is_on in (False, True):
        rule_changes.change(fresh(ada), PERSON, enabled=is_on)
        before = fresh(ada)
        for name, key in product(operations, keys):
            monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
            response(name, key)
            now = fresh(ada)
            assert (now.memory_enabled, now.rules) == (is_on, before.rules), name


def test_while_memory_is_off_no_operation_writes_or_reveals_anything(ada: Agent, house: House) -> None:
    close(ada, "master")
    before = rows()
    for name in (*API, *COMMANDS):
        text = response(name, house.ada_key)
        assert (rows(), CONTENT in text) == (before, False), name
        assert name in SILENT or any(word in text for word in REFUSALS), text


def test_a_category_that_is_off_stays_off_and_stores_nothing(ada: Agent, house: House) -> None:
    agent = settings(ada, **{f"categories__{name}__enabled": False for name in ("technical", "behavioral")})
    before = rows()
    names = ["POST memories", "POST memories/batch", "store", "import_memories", "POST import", "POST runs", "log_run"]
    for name in (*names, "PATCH memories/1", "DELETE memories/1", "POST memories/3/restore"):
        response(name, house.ada_key)
        assert (rows(), fresh(ada).rules) == (before, agent.rules), name


def test_init_asks_and_ends_without_consent(ada: Agent) -> None:
    close(ada)
    before = state(ada)
    for answer in ("n\n", "\n", "", "Y E S\n"):
        ran = at_a_terminal(answer, "init")
        assert ran.err.count(QUESTION_OF_INIT) == (2 if answer == "Y E S\n" else 1)  # an unclear answer is asked again
        assert (ran.code, ran.out.splitlines()[1:]) == (0, [" 2. Switch: memory stays off; nothing was done"])
        assert state(ada) == before
    found = rules("init", "--json").json
    assert (found["initialized"], [each["step"] for each in found["steps"]]) == (False, ["Settings", "Switch"])


def test_init_continues_with_consent(ada: Agent) -> None:
    close(ada, "master")
    ran = at_a_terminal("y\n", "init")
    assert (ran.code, fresh(ada).memory_enabled) == (0, True)
    assert [line[:3].strip() for line in ran.out.splitlines()] == [f"{step}." for step in range(1, 13)]


@pytest.mark.parametrize("closed", PATHS)
def test_store_does_nothing_without_consent(ada: Agent, closed: str) -> None:
    close(ada, closed)
    before = state(ada)
    for answer in ("n\n", "\n", "perhaps\n"):
        ran = at_a_terminal(answer, *STORE)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.count(QUESTION_OF_STORE) == (2 if answer == "perhaps\n" else 1)
        assert rule_changes.GOOD_FOR in ran.err
    ran = rules(*STORE)
    assert (ran.code, ran.out, "The input is not a terminal" in ran.err) == (1, "", True)
    assert state(ada) == before


@pytest.mark.parametrize("closed", PATHS)
def test_store_continues_with_consent(ada: Agent, closed: str) -> None:
    close(ada, closed)
    ran = at_a_terminal("y\n", *STORE)
    [line] = [line for line in ran.err.splitlines() if line.startswith("To turn on: ")]
    assert (ran.json["id"], line.endswith(f"({PATHS[closed]})")) == (5, True)
    assert (fresh(ada).memory_enabled, switches.closed(fresh(ada))) == (True, frozenset())


@pytest.mark.parametrize("reason", ["memory_off", "category_off", "recording_off"])
def test_automatic_recording_is_skipped_without_a_question(ada: Agent, reason: str) -> None:
    """Also at a terminal, where the answer would be yes."""
    settings(ada, auto_recording__enabled=reason != "recording_off")
    if reason == "category_off":
        off(ada, "user_interaction", auto_recording__enabled=True)
    rule_changes.change(fresh(ada), PERSON, enabled=reason != "memory_off")
    before = state(ada)
    ran = at_a_terminal("y\ny\n", "record", "--prompt", PROMPT, "--automatic", "--topic", "Tea")
    assert (ran.json["skipped"], ran.json["id"], ran.err) == (reason, None, "")
    assert (state(ada), len(sessions(ada))) == (before, 1)


def test_storing_as_a_part_of_other_work_is_skipped_without_a_question(ada: Agent) -> None:
    """While topics and sessions are off, a recording has no topic, and the session before it no memory."""
    before = settings(ada, **{f"categories__{name}__enabled": False for name in ("topic", "session")})
    for name in ("tuesday", "friday"):
        ran = at_a_terminal("y\ny\n", "record", "--prompt", PROMPT, "--topic", "Tea", "--session", name)
        why = "the agent has no vault. To create one, run manage.py project init acme/ada --vault."
        only = f"The memory is stored, but has no file: {why}\n"
        assert (ran.code, ran.err, ran.json["session"]) == (0, only, name)
    assert len(of_category(ada, "user_interaction")) == 3
    assert (of_category(ada, "topic"), of_category(ada, "session"), fresh(ada).rules) == ([], [], before.rules)


@pytest.mark.parametrize("consent", [True, False])
def test_no_worker_deletes_overdue_memories(ada: Agent, consent: bool) -> None:
    """Memories of ten years ago in every category, and all runs of two days; `require_user_consent` on or off."""
    refining.change(ada, due_at=None)  # no refinement, which would merge
    for category in DAYS:
        remember(ada, f"about {category}", category=category, origin=ago(3_650))
    settings(ada, cleanup_guidance__require_user_consent=consent)
    before = list(Memory.objects.values())
    tasks.sweep()
    tasks.close_stale()
    for turn in range(2 * 24 * 12):
        automatic.send_notices(NOW + timedelta(minutes=5 * turn))
    assert list(Memory.objects.exclude(source="system").values()) == before
    assert Memory.objects.filter(source="system").count() == 1  # the notice


BRAND = "Generated with [Claude Code](https://claude.com/claude-code)"
LICENCE = "<!-- LICENSE: Copyright (c) 2025 Jo Doe. Licensed under the MIT License (see LICENSE file). -->"


def test_brands_and_licences_are_not_stored(ada: Agent) -> None:
    fields = ("--context", BRAND, "--understanding", f"{LICENCE}\nTabs.")
    ran = [rules("store", f"Tabs, not spaces.\n{BRAND}\n{LICENCE}"), rules("store", *fields)]
    plain, structured = [each.json["id"] for each in ran]
    assert text_of(ada, plain) == "Tabs, not spaces."
    assert sections.split(text_of(ada, structured), "behavioral") == {"Understanding": "Tabs."}


def test_no_template_has_a_brand_or_a_licence() -> None:
    templates = sorted((Path(configured.TEMPLATES_DIR) / "memory_rules").glob("*.md"))
    assert len(templates) == 6
    for text in (template.read_text() for template in templates):
        assert neutral(text) == text
        for word in ("Agentic Rules", "Framework", "Palimpsest", "Copyright", "License", "Claude", "Cursor", "Copilot"):
            assert word.casefold() not in text.casefold()
