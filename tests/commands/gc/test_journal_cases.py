"""The original program's cases once more, of logs in the journal: with the agent's key, and without (seed 001)."""

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
from tests.commands.gc.cases import CASES, ENTRY, ME, Played, hold_request, lines_of, made, set_up
from tests.model_server import Action, ModelServer, Received, Turn
from tests.privacy.watch import watching
from tests.steps import problems


def entries_of(agent: dict[str, Any]) -> list[tuple[datetime, str]] | None:
    """The run entries of a case's file; None where it is anything else."""
    content = base64.b64decode(agent.get("memory_file_bytes_b64") or "")
    try:
        found = [(parse_moment("origin", at), body.rstrip("\n")) for at, body in ENTRY.findall(content.decode())]
        whole = "".join(runs.entry(at, body) for at, body in found).encode()
    except UnicodeDecodeError:
        return None
    is_log = whole == content and content.count(b"\n## ") + content.startswith(b"## ") == len(found)
    return found if is_log and not agent.get("memory_file") else None


def fits(case: dict[str, Any]) -> bool:
    return all(entries_of(agent) is not None for agent in case["agents"])


IN_JOURNAL = [case for case in CASES if fits(case)]
WITH_WORDS = [case for case in IN_JOURNAL if any(map(entries_of, case["agents"])) or case["expect"]["llm_calls"]]
ANALYSIS = "--- Analysis ---"


class Beside(Played):
    """What happens to the file while the call runs happens to the journal; what is said bears the mark."""

    def __init__(self, case: dict[str, Any], mark: str) -> None:
        super().__init__(case, {})
        self.mark = mark

    def _meanwhile(self, during: dict[str, Any]) -> None:
        agent = Agent.objects.get(slug=during["agent"])
        remember(agent, marked(entries_of({"memory_file_bytes_b64": during["append_b64"]}) or [], self.mark))
        connection.close()

    def _action(self, reply: dict[str, Any], turn: Turn) -> Action:
        said = {name: marked_reply(reply.get(name), self.mark) for name in ("content", "body_text")}
        return super()._action(reply | said, turn)


Entry = tuple[datetime, str]


def marked(entries: list[Entry], mark: str) -> list[Entry]:
    """With the mark in the task and in the result."""
    return [(at, re.sub(r"(\*\*(?:Task|Result):\*\* )", rf"\1{mark}", body)) for at, body in entries]


def marked_reply(said: str | None, mark: str) -> str | None:
    """With the mark in each text that it says, or before what is no JSON."""
    if not said or not mark:
        return said
    try:
        return json.dumps(_marked(json.loads(said), mark))
    except ValueError:
        return mark + said


def _marked(value: Any, mark: str, name: str = "") -> Any:
    if isinstance(value, dict):
        return {each: _marked(inner, mark, each) for each, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, mark, name) for inner in value]
    is_said = isinstance(value, str) and value and name in ("content", "text", "message", "error")
    return f"{mark}{value}" if is_said else value


def remember(agent: Agent, entries: list[Entry]) -> None:
    drafts = [Draft(body, kind=Kind.JOURNAL, source=Source.RUN, origin=at) for at, body in entries]
    if drafts:
        operations.remember(agent, drafts, ME)


def written(entries: list[Entry]) -> bytes:
    return "".join(runs.entry(at, body) for at, body in entries).encode()


def journal_of(agent: Agent) -> bytes:
    row = Agent.objects.get(pk=agent.pk)
    silo = Silo.for_agent(row)
    return written(
        [(each.origin, silo.open(each).content) for each in operations.runs(row).order_by("origin", "number")]
    )


def kept_back(expected: list[str], analyses: list[str]) -> list[str]:
    """What is printed without key or grant: one line in the place of each analysis."""
    text = "\n".join(expected)
    for said in analyses:
        kept = "Only the agent can read it: GET /api/v1/gc-reports/1"
        text = text.replace(f"{ANALYSIS}\n{said}", f"{ANALYSIS}\n{kept}", 1)
    return text.split("\n") if expected else []


def analyses_of(case: dict[str, Any]) -> list[str]:
    replies = (
        case.get("llm_sequence") or [case["llm"]] * case["expect"]["llm_calls"]
        if case.get("llm") or case.get("llm_sequence")
        else []
    )
    found = []
    for reply, wanted in zip(replies, requests_of(case), strict=False):
        if reply["status"] == 200 and reply.get("content") is not None and not reply.get("close"):
            found.append(reply["content"])
        elif reply["status"] == 200 and reply.get("body_text"):
            found += spoken(reply["body_text"], wanted["provider"])
    return found


def requests_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    expected = case["expect"]
    return expected.get("llm_requests") or ([expected["llm_request"]] if expected.get("llm_request") else [])


def spoken(body: str, provider: str) -> list[str]:
    try:
        said = json.loads(body)
    except ValueError:
        return []
    if provider == "anthropic":
        return ["".join(block.get("text", "") for block in said["content"])] if "content" in said else []
    message = said.get("message") if provider == "ollama" else (said.get("choices") or [{}])[0].get("message")
    return [message.get("content") or ""] if message else []


@dataclass
class Silos:
    """A case's agents, each with its log in its journal, and what became of them."""

    case: dict[str, Any]
    mark: str = ""
    rows: dict[str, Agent] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    before: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for agent in self.case["agents"]:
            row, key = made(agent)
            if agent["memory"] and agent["memory"]["enabled"]:
                remember(row, marked(entries_of(agent) or [], self.mark))
            self.rows[agent["name"]], self.keys[agent["name"]] = row, key
            self.before[agent["name"]] = journal_of(row)

    @property
    def first(self) -> str:
        """Whose key is given, where one is."""
        return str(self.case["agents"][0]["name"])

    def run(self, settings: Any) -> tuple[Ran, list[Received]]:
        with ModelServer(Beside(self.case, self.mark)) as server:
            set_up(self.case, server, settings)
            return run(self.case["args"][0], *self.case["args"][1:]), server.requests

    @property
    def is_sent_elsewhere(self) -> bool:
        """Whether another model is asked, which takes each silo's key."""
        return "--model" in self.case["args"] and self.case["args"][-1] != "" and bool(self.case["expect"]["llm_calls"])

    def hold_journals(self, given: str) -> None:
        """`given`: the agent whose key there is."""
        for name, after in (self.case["expect"].get("memory_file_after_b64") or {}).items():
            wanted = self.before[name]
            if after != "unchanged" and (not self.is_sent_elsewhere or name == given):
                wanted = written(marked(entries_of({"memory_file_bytes_b64": after}) or [], self.mark))
            assert journal_of(self.rows[name]) == wanted, name
        for agent in self.rows.values():
            assert problems(agent) == []

    def hold_requests(self, received: list[Received], given: str) -> None:
        wanted = [(one, one.get("agent") or self.first) for one in requests_of(self.case)]
        sent = [(one, name) for one, name in wanted if not self.is_sent_elsewhere or name == given]
        for (one, name), request in zip(sent, received, strict=True):
            hold_request(one, request.body, self.before[name].decode())


@pytest.mark.parametrize("case", IN_JOURNAL, ids=[case["name"] for case in IN_JOURNAL])
def test_from_the_journal_with_the_agents_key(
    case: dict[str, Any], transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = Silos(case)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", silos.keys[silos.first])
    ran, received = silos.run(settings)
    silos.hold_requests(received, silos.first)
    silos.hold_journals(silos.first)
    if len(silos.rows) == 1:
        assert ran.code == case["expect"]["exit"], ran
        assert lines_of(ran.out) == case["expect"]["stdout_lines"]
        hold_classes(case, ran)
    elif silos.is_sent_elsewhere:
        assert ran.code == 1
        assert ran.err.count("set PALIMPSEST_AGENT_KEY") == len(silos.rows) - 1


@pytest.mark.parametrize("case", WITH_WORDS, ids=[case["name"] for case in WITH_WORDS])
def test_from_the_journal_nobody_reads_a_word(case: dict[str, Any], transactional_db: None, settings: Any) -> None:
    with watching() as watch:
        silos = Silos(case, watch.marker)
        ran, received = silos.run(settings)
        watch.outputs += [ran.out, ran.err]
    assert watch.leaks() == []
    silos.hold_requests(received, given="")
    silos.hold_journals(given="")
    if silos.is_sent_elsewhere:
        assert ran.code == (2 if len(silos.rows) == 1 else 1)
        assert "set PALIMPSEST_AGENT_KEY" in ran.err
        return
    assert ran.code == case["expect"]["exit"], ran
    assert lines_of(ran.out) == kept_back(case["expect"]["stdout_lines"], analyses_of(case))
    hold_classes(case, ran)


def hold_classes(case: dict[str, Any], ran: Ran) -> None:
    """A provider's words are not told, but what kind of error it was."""
    if not case["expect"].get("stderr_contains"):
        kinds = r"(auth|server|rate_limit|bad_request): .*"
        assert [re.sub(kinds, r"\1", line) for line in lines_of(ran.err)] == [
            re.sub(kinds, r"\1", line) for line in case["expect"]["stderr_lines"]
        ]


def test_a_mark_would_be_found(transactional_db: None) -> None:
    """The watch in those cases is not blind."""
    with watching() as watch:
        watch.marker = "quaggaW7f2kq9"  # not the suite's own, for it stays in the database's file
        agent, _ = made({"name": "ada", "memory": None, "model": "openai/gpt"})
        Agent.objects.filter(pk=agent.pk).update(memory_path=f"/{watch.marker}")
    assert watch.leaks() != []
