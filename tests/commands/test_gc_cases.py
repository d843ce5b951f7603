"""`gc` held to 81 cases of the original program (seed 001), with a memory file and from the journal."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from audit.trail import Actor
from memory import agents, runs, store
from memory.intake import Draft, parse_moment
from memory.models import Agent, Kind, Source
from memory.silo.silo import Silo
from refinement.llm import connections
from tests.commands.calling import Ran, run
from tests.model_server import Action, Cut, ModelServer, Raw, Slow, Status, Turn
from tests.steps import problems

ME = Actor.operator("tests")
WHOLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data" / "gc_cases.json").read_text())
CASES: list[dict[str, Any]] = WHOLE["cases"]
PROMPT: str = WHOLE["system_prompt"]
RENAMED = {"AXE_OPENAI_BASE_URL": "OPENAI_BASE_URL", "AXE_OLLAMA_BASE_URL": "OLLAMA_BASE_URL"}
ENTRY = re.compile(r"## (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\n(\*\*Task:\*\* .*\n\*\*Result:\*\* (?:.*\n)*?)\n(?=## |\Z)")


class Played:
    """The model server as the case has it."""

    def __init__(self, case: dict[str, Any], files: dict[str, Path]) -> None:
        self.replies = case["llm_sequence"] if case.get("llm_sequence") else None
        self.reply, self.files = case.get("llm"), files

    def __call__(self, turn: Turn) -> Action:
        reply = self.replies[turn.number] if self.replies else self.reply
        assert reply is not None, "no call may be made"
        if reply.get("during"):
            self._meanwhile(reply["during"])
        action = self._action(reply, turn)
        return Slow(reply["delay_s"], then=action) if reply.get("delay_s") else action

    def _action(self, reply: dict[str, Any], turn: Turn) -> Action:
        if reply.get("close"):
            return Cut(midway=False)
        if reply["status"] != 200:
            return Status(reply["status"], reply.get("headers") or {}, reply.get("body_text", ""))
        if reply.get("content") is not None:
            return Raw(json.dumps(wrapped(reply["content"], turn.protocol)).encode())
        return Raw(reply["body_text"].encode())

    def _meanwhile(self, during: dict[str, Any]) -> None:
        path = self.files[during["agent"]]
        with path.open("ab") as other:
            other.write(base64.b64decode(during["append_b64"]))


def wrapped(content: str, protocol: str) -> dict[str, Any]:
    if protocol == "openai":
        return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    if protocol == "anthropic":
        return {"content": [{"type": "text", "text": content}], "stop_reason": "end_turn"}
    return {"message": {"role": "assistant", "content": content}, "done": True, "done_reason": "stop"}


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    return tmp_path


def made(agent: dict[str, Any], path: str = "") -> tuple[Agent, str]:
    memory = agent["memory"] or {"enabled": False, "last_n": 0, "max_entries": 0}
    row, key = agents.create(
        "acme",
        agent["name"],
        model="builtin/dedupe",
        actor=ME,
        memory_enabled=memory["enabled"],
        last_n=memory["last_n"],
        max_entries=memory["max_entries"],
        memory_path=path,
    )
    Agent.objects.filter(pk=row.pk).update(model=agent["model"])
    return row, key


def file_for(agent: dict[str, Any], folder: Path) -> Path:
    own = (agent["memory"] or {}).get("path", "").replace("{TMP}", str(folder))
    path = Path(own) if own else folder / "memory" / f"{agent['name']}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    how = agent.get("memory_file") or {}
    if agent.get("memory_file_bytes_b64") is not None:
        path.write_bytes(base64.b64decode(agent["memory_file_bytes_b64"]))
    if "mode" in how:
        path.chmod(int(how["mode"], 8))
    return path


def set_up(case: dict[str, Any], server: ModelServer, settings: Any) -> None:
    working = {"OPENAI_API_KEY": "any", "ANTHROPIC_API_KEY": "any", "OPENAI_BASE_URL": server.openai_url}
    working |= {"ANTHROPIC_BASE_URL": server.anthropic_url, "OLLAMA_BASE_URL": server.ollama_url}
    for name, value in (case.get("env") or {}).items():
        ours = RENAMED.get(name, name)
        closed = "http://127.0.0.1:9" + ("/v1" if ours == "OPENAI_BASE_URL" else "")
        working[ours] = "" if value is None else value.replace("{CLOSED}", closed)
    for name, value in working.items():
        setattr(settings, name, value)
    settings.MODEL_CALL_SECONDS = 5


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "{NO-EOL}"]


def hold(case: dict[str, Any], ran: Ran, calls: int) -> None:
    expected = case["expect"]
    assert ran.code in (expected["exit"], *(expected.get("exit_also_ok") or case.get("exit_also_ok") or ())), ran
    assert lines_of(ran.out) == expected["stdout_lines"], ran.err
    if expected.get("stderr_contains"):
        for words in expected["stderr_contains"]:
            assert words in ran.err
    else:
        assert lines_of(ran.err) == expected["stderr_lines"]
    assert calls == expected["llm_calls"]


def hold_request(wanted: dict[str, Any], body: dict[str, Any], log: str) -> None:
    assert body["model"] == wanted["model"]
    options = body.get("options", body)
    assert options["temperature"] == wanted["temperature"]
    assert options.get("num_predict", options.get("max_tokens")) == wanted["max_tokens"]
    assert "tools" not in body
    [*_, user] = body["messages"]
    system = body["system"] if "system" in body else body["messages"][0]["content"]
    assert said(system) == PROMPT
    assert said(user["content"]) == log


def said(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_with_a_memory_file(case: dict[str, Any], folder: Path, db: None, settings: Any, request: Any) -> None:
    files = {agent["name"]: file_for(agent, folder) for agent in case["agents"]}
    before = {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}
    for agent in case["agents"]:
        made(agent, str(files[agent["name"]]))
        if (agent.get("memory_file") or {}).get("kind") == "dir":
            files[agent["name"]].mkdir()
    with ModelServer(Played(case, files)) as server:
        set_up(case, server, settings)
        dirs = [files[a["name"]].parent for a in case["agents"] if "dir_mode" in (a.get("memory_file") or {})]
        for each in dirs:
            each.chmod(0o555)
        if case.get("unprivileged"):
            request.getfixturevalue("as_nobody")
        ran = run(case["args"][0], *case["args"][1:])
        for each in dirs:
            each.chmod(0o755)
    if case.get("unprivileged") and os.getuid() == 0:
        os.seteuid(0)
    hold(case, ran, len(server.requests))
    expected = case["expect"]
    for name, after in (expected.get("memory_file_after_b64") or {}).items():
        path = files[name]
        now = path.read_bytes() if path.is_file() else None
        assert now == (before[name] if after == "unchanged" else after and base64.b64decode(after)), name
    for name, mode in (expected.get("mode_after") or {}).items():
        assert files[name].stat().st_mode & 0o777 == int(mode, 8)
    left = {each for path in files.values() for each in path.parent.iterdir()} - set(files.values())
    assert len([each for each in left if each.is_file()]) == expected["leftover_temp_files"]
    wanted = expected.get("llm_requests") or ([expected["llm_request"]] if expected.get("llm_request") else [])
    for one, received in zip(wanted, server.requests, strict=True):
        name = one.get("agent") or case["agents"][0]["name"]
        hold_request(one, received.body, (before[name] or b"").decode("utf-8", "replace"))


# --- from the journal


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
ANALYSIS = "--- Analysis ---"


class PlayedBeside(Played):
    """What happens to the file while the call runs happens to the journal."""

    def _meanwhile(self, during: dict[str, Any]) -> None:
        agent = Agent.objects.get(slug=during["agent"])
        remember(agent, entries_of({"memory_file_bytes_b64": during["append_b64"]}) or [])
        connection.close()


def remember(agent: Agent, entries: list[tuple[datetime, str]]) -> None:
    drafts = [Draft(body, kind=Kind.JOURNAL, source=Source.RUN, origin=at) for at, body in entries]
    if drafts:
        store.remember(agent, drafts, ME)


def journal_of(agent: Agent) -> bytes:
    row = Agent.objects.get(pk=agent.pk)
    rows = store.runs(row).order_by("origin", "number")
    silo = Silo.for_agent(row)
    return "".join(runs.entry(each.origin, silo.open(each).content) for each in rows).encode()


def kept_back(expected: list[str], analyses: list[str]) -> list[str]:
    """What is printed without key or grant: one line in the place of each analysis."""
    text = "\n".join(expected)
    for said in analyses:
        kept = "Kept for its agent alone: GET /api/v1/gc-reports/1"
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


@pytest.mark.parametrize("with_key", [False, True], ids=["nobody", "key"])
@pytest.mark.parametrize("case", IN_JOURNAL, ids=[case["name"] for case in IN_JOURNAL])
def test_from_the_journal(
    case: dict[str, Any], with_key: bool, transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, keys = {}, {}
    for agent in case["agents"]:
        rows[agent["name"]], keys[agent["name"]] = made(agent)
        if agent["memory"] and agent["memory"]["enabled"]:
            remember(rows[agent["name"]], entries_of(agent) or [])
    before = {name: journal_of(row) for name, row in rows.items()}
    if with_key:
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", keys[case["agents"][0]["name"]])
    with ModelServer(PlayedBeside(case, {})) as server:
        set_up(case, server, settings)
        ran = run(case["args"][0], *case["args"][1:])
    hold_of_silo(case, ran, len(server.requests), with_key=with_key)
    if ran.code == 2 or ("--model" in case["args"] and len(rows) > 1):
        return  # a silo's log was not sent elsewhere
    for name, after in (case["expect"].get("memory_file_after_b64") or {}).items():
        assert journal_of(rows[name]) == (before[name] if after == "unchanged" else base64.b64decode(after or "")), name
    for one, received in zip(requests_of(case), server.requests, strict=True):
        name = one.get("agent") or case["agents"][0]["name"]
        hold_request(one, received.body, before[name].decode())
    for agent in rows.values():
        assert problems(agent) == []


def hold_of_silo(case: dict[str, Any], ran: Ran, calls: int, *, with_key: bool) -> None:
    expected, alone = case["expect"], len(case["agents"]) == 1
    needs_key = "--model" in case["args"] and case["args"][-1] != ""
    if needs_key and not (with_key and alone) and expected["llm_calls"]:
        assert ran.code == (2 if alone else 1)
        assert calls == (1 if with_key else 0)
        return
    assert ran.code == expected["exit"], ran
    assert calls == expected["llm_calls"]
    shown = expected["stdout_lines"]
    if not with_key:
        shown = kept_back(shown, analyses_of(case))
    elif not alone:
        return
    assert lines_of(ran.out) == shown
    words = [re.sub(r"(auth|server|rate_limit|bad_request): .*", r"\1", line) for line in expected["stderr_lines"]]
    if not expected.get("stderr_contains"):
        assert lines_of(ran.err) == words
