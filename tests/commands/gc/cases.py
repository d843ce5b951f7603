"""The 81 cases of the original program (seed 001), played to the real command with a real model server."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from tests.commands.calling import Ran
from tests.model_server import Action, Cut, ModelServer, Raw, Received, Slow, Status, Turn
from tests.steps import signed_update

ME = Actor.operator("tests")
_DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "gc_cases.json").read_text())
CASES: list[dict[str, Any]] = _DATA["cases"]
PROMPT: str = _DATA["system_prompt"]
RENAMED = {"AXE_OPENAI_BASE_URL": "OPENAI_BASE_URL", "AXE_OLLAMA_BASE_URL": "OLLAMA_BASE_URL"}
ENTRY = re.compile(r"## (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\n(\*\*Task:\*\* .*\n\*\*Result:\*\* (?:.*\n)*?)\n(?=## |\Z)")


class CaseModel:
    """The model server of a case."""

    def __init__(self, case: dict[str, Any], files: dict[str, Path]) -> None:
        self.replies = case["llm_sequence"] if case.get("llm_sequence") else None
        self.reply, self.files = case.get("llm"), files

    def __call__(self, turn: Turn) -> Action:
        reply = self.replies[turn.number] if self.replies else self.reply
        assert reply is not None, "this case makes no call"
        if reply.get("during"):
            self._append(reply["during"])
        action = self._action(reply, turn)
        return Slow(reply["delay_s"], then=action) if reply.get("delay_s") else action

    def _action(self, reply: dict[str, Any], turn: Turn) -> Action:
        if reply.get("close"):
            return Cut(midway=False)
        if reply["status"] != 200:
            return Status(reply["status"], reply.get("headers") or {}, reply.get("body_text", ""))
        if reply.get("content") is not None:
            return Raw(json.dumps(response_body(reply["content"], turn.protocol)).encode())
        return Raw(reply["body_text"].encode())

    def _append(self, during: dict[str, Any]) -> None:
        """Another program writes to the log during the call."""
        with self.files[during["agent"]].open("ab") as file:
            file.write(base64.b64decode(during["append_b64"]))


def response_body(content: str, protocol: str) -> dict[str, Any]:
    if protocol == "openai":
        return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    if protocol == "anthropic":
        return {"content": [{"type": "text", "text": content}], "stop_reason": "end_turn"}
    return {"message": {"role": "assistant", "content": content}, "done": True, "done_reason": "stop"}


def create(agent: dict[str, Any], path: str = "") -> tuple[Agent, str]:
    memory = agent["memory"] or {"enabled": False, "last_n": 0, "max_entries": 0}
    limits = {"memory_enabled": memory["enabled"], "last_n": memory["last_n"], "max_entries": memory["max_entries"]}
    values = {"model": "builtin/dedupe", "memory_path": path} | limits
    row, key = lifecycle.create("acme", agent["name"], actor=ME, **values)
    signed_update(Agent.objects.filter(pk=row.pk), model=agent["model"])
    return row, key


def write_file(agent: dict[str, Any], folder: Path) -> Path:
    """Write the agent's memory file, if the case has one. Returns its path."""
    own = (agent["memory"] or {}).get("path", "").replace("{TMP}", str(folder))
    path = Path(own) if own else folder / "memory" / f"{agent['name']}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    if agent.get("memory_file_bytes_b64") is not None:
        path.write_bytes(base64.b64decode(agent["memory_file_bytes_b64"]))
    if mode := (agent.get("memory_file") or {}).get("mode"):
        path.chmod(int(mode, 8))
    return path


def configure(case: dict[str, Any], server: ModelServer, settings: Any) -> None:
    values = {"OPENAI_API_KEY": "any", "ANTHROPIC_API_KEY": "any", "OPENAI_BASE_URL": server.openai_url}
    values |= {"ANTHROPIC_BASE_URL": server.anthropic_url, "OLLAMA_BASE_URL": server.ollama_url}
    for original, value in (case.get("env") or {}).items():
        name = RENAMED.get(original, original)
        closed = "http://127.0.0.1:9" + ("/v1" if name == "OPENAI_BASE_URL" else "")
        values[name] = "" if value is None else value.replace("{CLOSED}", closed)
    for name, value in values.items():
        setattr(settings, name, value)
    settings.MODEL_CALL_SECONDS = 5


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "{NO-EOL}"]


def expected_requests(case: dict[str, Any]) -> list[dict[str, Any]]:
    expect = case["expect"]
    return expect.get("llm_requests") or ([expect["llm_request"]] if expect.get("llm_request") else [])


def assert_result(case: dict[str, Any], ran: Ran, calls: int) -> None:
    expect = case["expect"]
    assert ran.code in (expect["exit"], *(expect.get("exit_also_ok") or case.get("exit_also_ok") or ())), ran
    assert lines_of(ran.out) == expect["stdout_lines"], ran.err
    if expect.get("stderr_contains"):
        for words in expect["stderr_contains"]:
            assert words in ran.err
    else:
        assert lines_of(ran.err) == expect["stderr_lines"]
    assert calls == expect["llm_calls"]


def assert_request(expected: dict[str, Any], received: Received, log: str) -> None:
    body = received.body
    assert body["model"] == expected["model"]
    options = body.get("options", body)
    assert options["temperature"] == expected["temperature"]
    assert options.get("num_predict", options.get("max_tokens")) == expected["max_tokens"]
    assert "tools" not in body
    system = body["system"] if "system" in body else body["messages"][0]["content"]
    assert [_text(system), _text(body["messages"][-1]["content"])] == [PROMPT, log]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)
