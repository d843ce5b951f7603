"""The original program's cases again, with logs in the journal: with the agent's key and without it (seed 001)."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
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
    configure,
    create,
    expected_requests,
    lines_of,
)
from tests.model_server import Action, ModelServer, Received, Turn
from tests.privacy.watch import watching
from tests.steps import problems

Entry = tuple[datetime, str]
ANALYSIS = "--- Analysis ---"


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
    """Put the mark into each text of a JSON reply, or before another reply."""
    if not reply or not mark:
        return reply
    try:
        return json.dumps(_mark_texts(json.loads(reply), mark))
    except ValueError:
        return mark + reply


def _mark_texts(value: Any, mark: str, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _mark_texts(inner, mark, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mark_texts(inner, mark, name) for inner in value]
    is_text = isinstance(value, str) and value and name in ("content", "text", "message", "error")
    return f"{mark}{value}" if is_text else value


def remember(agent: Agent, entries: list[Entry]) -> None:
    if drafts := [Draft(body, kind=Kind.JOURNAL, source=Source.RUN, origin=at) for at, body in entries]:
        operations.remember(agent, drafts, ME)


def journal_of(agent: Agent) -> bytes:
    row = Agent.objects.get(pk=agent.pk)
    silo = Silo.for_agent(row)
    return render(
        [(each.origin, silo.open(each).content) for each in operations.runs(row).order_by("origin", "number")]
    )


def without_analyses(lines: list[str], analyses: list[str]) -> list[str]:
    """The output without key or grant: each analysis is replaced by one line."""
    text = "\n".join(lines)
    for analysis in analyses:
        replacement = "Only the agent can read it: GET /api/v1/gc-reports/1"
        text = text.replace(f"{ANALYSIS}\n{analysis}", f"{ANALYSIS}\n{replacement}", 1)
    return text.split("\n") if lines else []


def analyses_of(case: dict[str, Any]) -> list[str]:
    one = [case["llm"]] if case.get("llm") else []
    replies = case.get("llm_sequence") or one * case["expect"]["llm_calls"]
    found = []
    for reply, expected in zip(replies, expected_requests(case), strict=False):
        if reply["status"] == 200 and reply.get("content") is not None and not reply.get("close"):
            found.append(reply["content"])
        elif reply["status"] == 200 and reply.get("body_text"):
            found += text_of_reply(reply["body_text"], expected["provider"])
    return found


def text_of_reply(body: str, provider: str) -> list[str]:
    try:
        reply = json.loads(body)
    except ValueError:
        return []
    if provider == "anthropic":
        return ["".join(block.get("text", "") for block in reply["content"])] if "content" in reply else []
    message = reply.get("message") if provider == "ollama" else (reply.get("choices") or [{}])[0].get("message")
    return [message.get("content") or ""] if message else []


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
def test_without_a_key_no_content_of_a_journal_is_printed(
    case: dict[str, Any], transactional_db: None, settings: Any
) -> None:
    with watching() as watch:
        silos = Silos(case, watch.marker)
        ran = silos.run(settings)
        watch.outputs += [ran.out, ran.err]
    assert watch.leaks() == []
    if silos.uses_another_model:
        assert ran.code == (2 if len(silos.rows) == 1 else 1)
        assert "set PALIMPSEST_AGENT_KEY" in ran.err
        return
    assert ran.code == case["expect"]["exit"], ran
    assert lines_of(ran.out) == without_analyses(case["expect"]["stdout_lines"], analyses_of(case))
    assert_error_classes(case, ran)


def assert_error_classes(case: dict[str, Any], ran: Ran) -> None:
    """An error has the expected class, but not the provider's text."""
    if not case["expect"].get("stderr_contains"):
        lines = [lines_of(ran.err), case["expect"]["stderr_lines"]]
        found, expected = (
            [re.sub(r"(auth|server|rate_limit|bad_request): .*", r"\1", line) for line in each] for each in lines
        )
        assert found == expected


def test_the_watch_of_these_cases_finds_a_mark(transactional_db: None) -> None:
    with watching() as watch:
        watch.marker = "quaggaW7f2kq9"  # another one, because it stays in the database's file
        agent, _ = create({"name": "ada", "memory": None, "model": "openai/gpt"})
        Agent.objects.filter(pk=agent.pk).update(memory_path=f"/{watch.marker}")
    assert watch.leaks() != []
