"""The original program's cases, with a memory file, and with a journal and its agent's key or without (seed 001)."""

import base64
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from memory.models import Agent, Kind, Source
from memory.policy.validation import Draft, parse_moment
from memory.run_log import runs
from memory.silo.silo import Silo
from memory.writing import operations
from tests.commands.calling import Ran, run
from tests.commands.gc.cases import (
    CASES,
    ENTRY,
    ME,
    CaseModel,
    assert_request,
    assert_result,
    configure,
    create,
    expected_requests,
    lines_of,
    write_file,
)
from tests.model_server import Action, ModelServer, Received, Turn
from tests.privacy.watch import watching
from tests.steps import problems


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_with_a_memory_file(case: dict[str, Any], tmp_path: Path, db: None, settings: Any, request: Any) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    files = {agent["name"]: write_file(agent, tmp_path) for agent in case["agents"]}
    before = {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}
    read_only = [files[a["name"]].parent for a in case["agents"] if "dir_mode" in (a.get("memory_file") or {})]
    for agent in case["agents"]:
        create(agent, str(files[agent["name"]]))
        if (agent.get("memory_file") or {}).get("kind") == "dir":
            files[agent["name"]].mkdir()
    with ModelServer(CaseModel(case, files)) as server:
        configure(case, server, settings)
        for folder in read_only:
            folder.chmod(0o555)
        if case.get("unprivileged"):
            request.getfixturevalue("as_nobody")
        ran = run(case["args"][0], *case["args"][1:])
        for folder in read_only:
            folder.chmod(0o755)
    if case.get("unprivileged") and os.getuid() == 0:
        os.seteuid(0)
    assert_result(case, ran, len(server.requests))
    expect = case["expect"]
    for name, after in (expect.get("memory_file_after_b64") or {}).items():
        content = files[name].read_bytes() if files[name].is_file() else None
        assert content == (before[name] if after == "unchanged" else after and base64.b64decode(after)), name
    for name, mode in (expect.get("mode_after") or {}).items():
        assert files[name].stat().st_mode & 0o777 == int(mode, 8)
    left_over = {each for path in files.values() for each in path.parent.iterdir()} - set(files.values())
    assert len([each for each in left_over if each.is_file()]) == expect["leftover_temp_files"]
    for expected, received in zip(expected_requests(case), server.requests, strict=True):
        name = expected.get("agent") or case["agents"][0]["name"]
        assert_request(expected, received, (before[name] or b"").decode("utf-8", "replace"))


Entry = tuple[datetime, str]
ANALYSIS = "--- Analysis ---"
AFTER_ANALYSIS = ("Trimmed: ", "No trim", "Dry run: ", "=== ")


def parse_log(file: bytes) -> list[Entry] | None:
    """The run entries of a file; None if it has anything else."""
    try:
        entries = [(parse_moment("origin", at), body.rstrip("\n")) for at, body in ENTRY.findall(file.decode())]
    except UnicodeDecodeError:
        return None
    is_log = render(entries) == file and file.count(b"\n## ") + file.startswith(b"## ") == len(entries)
    return entries if is_log else None


def render(entries: list[Entry]) -> bytes:
    return "".join(runs.entry(at, body) for at, body in entries).encode()


def file_of(agent: dict[str, Any]) -> bytes:
    return base64.b64decode(agent.get("memory_file_bytes_b64") or "")


def fits_journal(agent: dict[str, Any]) -> bool:
    return parse_log(file_of(agent)) is not None and not agent.get("memory_file")


JOURNAL_CASES = [case for case in CASES if all(map(fits_journal, case["agents"]))]
CASES_WITH_CONTENT = [
    case for case in JOURNAL_CASES if any(map(file_of, case["agents"])) or case["expect"]["llm_calls"]
]


class JournalModel(CaseModel):
    """Appends to the journal instead of the file. Its replies contain the mark."""

    def __init__(self, case: dict[str, Any], mark: str) -> None:
        super().__init__(case, {})
        self.mark = mark

    def _append(self, during: dict[str, Any]) -> None:
        entries = parse_log(base64.b64decode(during["append_b64"])) or []
        remember(Agent.objects.get(slug=during["agent"]), mark_entries(entries, self.mark))
        connection.close()

    def _action(self, reply: dict[str, Any], turn: Turn) -> Action:
        marked = {name: mark_reply(reply.get(name), self.mark) for name in ("content", "body_text")}
        return super()._action(reply | marked, turn)


def mark_entries(entries: list[Entry], mark: str) -> list[Entry]:
    """Put the mark into the task and the result of each."""
    return [(at, re.sub(r"(\*\*(?:Task|Result):\*\* )", rf"\1{mark}", body)) for at, body in entries]


def mark_reply(reply: str | None, mark: str) -> str | None:
    """Put the mark before each text of a JSON reply, or before another reply."""
    if reply and mark and reply.startswith("{"):
        return re.sub(r'("(?:content|text|message|error)":\s*")(?=[^"])', rf"\1{mark}", reply)
    return f"{mark}{reply}" if reply else reply


def remember(agent: Agent, entries: list[Entry]) -> None:
    if drafts := [Draft(body, kind=Kind.JOURNAL, source=Source.RUN, origin=at) for at, body in entries]:
        operations.remember(agent, drafts, ME)


def journal_of(agent: Agent) -> bytes:
    row = Agent.objects.get(pk=agent.pk)
    silo = Silo.for_agent(row)
    return render(
        [(each.origin, silo.open(each).content) for each in operations.runs(row).order_by("origin", "number")]
    )


def without_analyses(lines: list[str]) -> list[str]:
    """The output without key or grant: one line in place of each analysis."""
    result, is_analysis = [], False
    for line in lines:
        is_analysis = is_analysis and not line.startswith(AFTER_ANALYSIS)
        if not is_analysis:
            result.append(line)
        if line == ANALYSIS:
            result.append("Only the agent can read it: GET /api/v1/gc-reports/1")
            is_analysis = True
    return result


@dataclass
class Silos:
    """The agents of a case, each with its log in its journal."""

    case: dict[str, Any]
    mark: str = ""
    key_owner: str = ""  # the agent whose key is in the environment
    rows: dict[str, Agent] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    before: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for agent in self.case["agents"]:
            name = agent["name"]
            self.rows[name], self.keys[name] = create(agent)
            if agent["memory"] and agent["memory"]["enabled"]:
                remember(self.rows[name], mark_entries(parse_log(file_of(agent)) or [], self.mark))
            self.before[name] = journal_of(self.rows[name])

    @property
    def first(self) -> str:
        return str(self.case["agents"][0]["name"])

    def run(self, settings: Any) -> Ran:
        with ModelServer(JournalModel(self.case, self.mark)) as server:
            configure(self.case, server, settings)
            ran = run(self.case["args"][0], *self.case["args"][1:])
        self._assert_requests(server.requests)
        self._assert_journals()
        return ran

    @property
    def uses_another_model(self) -> bool:
        """Whether the case sends a silo to another model, which needs the key of its agent."""
        return "--model" in self.case["args"] and self.case["args"][-1] != "" and bool(self.case["expect"]["llm_calls"])

    def _assert_journals(self) -> None:
        for name, after in (self.case["expect"].get("memory_file_after_b64") or {}).items():
            expected = self.before[name]
            if after != "unchanged" and (not self.uses_another_model or name == self.key_owner):
                expected = render(mark_entries(parse_log(base64.b64decode(after or "")) or [], self.mark))
            assert journal_of(self.rows[name]) == expected, name
        for agent in self.rows.values():
            assert problems(agent) == []

    def _assert_requests(self, received: list[Received]) -> None:
        expected = [(each, each.get("agent") or self.first) for each in expected_requests(self.case)]
        sent = [(each, name) for each, name in expected if not self.uses_another_model or name == self.key_owner]
        for (each, name), request in zip(sent, received, strict=True):
            assert_request(each, request, self.before[name].decode())


@pytest.mark.parametrize("case", JOURNAL_CASES, ids=[case["name"] for case in JOURNAL_CASES])
def test_a_journal_gives_the_same_results_with_the_agents_key(
    case: dict[str, Any], transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = Silos(case)
    silos.key_owner = silos.first
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", silos.keys[silos.first])
    ran = silos.run(settings)
    if len(silos.rows) == 1:
        assert ran.code == case["expect"]["exit"], ran
        assert lines_of(ran.out) == case["expect"]["stdout_lines"]
        assert_error_classes(case, ran)
    elif silos.uses_another_model:
        assert ran.code == 1
        assert ran.err.count("set PALIMPSEST_AGENT_KEY") == len(silos.rows) - 1


@pytest.mark.parametrize("case", CASES_WITH_CONTENT, ids=[case["name"] for case in CASES_WITH_CONTENT])
def test_without_a_key_no_content_is_printed(case: dict[str, Any], transactional_db: None, settings: Any) -> None:
    with watching() as watch:
        silos = Silos(case, watch.marker)
        ran = silos.run(settings)
        watch.outputs += [ran.out, ran.err]
    assert watch.leaks(stored=False) == []
    if silos.uses_another_model:
        assert ran.code == (2 if len(silos.rows) == 1 else 1)
        assert "set PALIMPSEST_AGENT_KEY" in ran.err
        return
    assert ran.code == case["expect"]["exit"], ran
    assert lines_of(ran.out) == without_analyses(case["expect"]["stdout_lines"])
    assert_error_classes(case, ran)


def assert_error_classes(case: dict[str, Any], ran: Ran) -> None:
    """An error has the expected class, but not the provider's text."""
    if not case["expect"].get("stderr_contains"):
        lines = [lines_of(ran.err), case["expect"]["stderr_lines"]]
        found, expected = (
            [re.sub(r"(auth|server|rate_limit|bad_request): .*", r"\1", line) for line in each] for each in lines
        )
        assert found == expected
