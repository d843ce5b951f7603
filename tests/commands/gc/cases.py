"""81 cases of the original program (seed 001), played to the real command against a real model server."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from tests.commands.calling import Ran
from tests.model_server import Action, Cut, ModelServer, Raw, Slow, Status, Turn

ME = Actor.operator("tests")
WHOLE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "gc_cases.json").read_text())
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


def made(agent: dict[str, Any], path: str = "") -> tuple[Agent, str]:
    memory = agent["memory"] or {"enabled": False, "last_n": 0, "max_entries": 0}
    row, key = lifecycle.create(
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
