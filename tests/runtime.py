"""An agent's runtime as its author would write it: the API, a model's server, and nothing of the project imported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Runtime:
    """Has a model (any server that speaks OpenAI's protocol) refine the agent whose key it holds."""

    address: str
    key: str
    model_url: str
    calls: int = 0
    refused: int = 0

    def refine(self) -> dict[str, Any]:
        """A whole session; how it stands in the end."""
        with self._client() as api:
            session = api.post("refinement-sessions", json={"driver": "runtime"}).raise_for_status().json()
            while self._work(api, session):
                pass
            return dict(api.get(f"refinement-sessions/{session['id']}").raise_for_status().json())

    def export(self) -> str:
        with self._client() as api:
            return api.get("export?discarded=true").raise_for_status().text

    def remember(self, lines: bytes) -> int:
        kind = {"Content-Type": "application/x-ndjson"}
        with self._client() as api:
            return int(api.post("import", content=lines, headers=kind).raise_for_status().json()["imported"])

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.address}/api/v1/", headers={"Authorization": f"Bearer {self.key}"}, timeout=60
        )

    def _work(self, api: httpx.Client, session: dict[str, Any]) -> bool:
        """A batch, in a conversation of its own. True when the next one is due."""
        at = f"refinement-sessions/{session['id']}"
        briefing = api.get(f"{at}/briefing").raise_for_status().json()
        messages = list(briefing["messages"])
        for reply in range(session["max_steps"] + 1):
            said = self._think(messages, briefing["tools"])
            messages.append(said)
            for call in said["tool_calls"]:
                answer = self._carry_out(api, at, call["function"], f"{briefing['batch']}-{reply}")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(answer["result"])})
                if answer["session_ended"] or answer["batch_done"]:
                    return bool(answer["batch_done"])
        raise RuntimeError("the session goes on beyond its last step")

    def _think(self, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        """The model's next reply."""
        body = {"model": "scripted", "messages": messages, "tools": tools, "max_tokens": 4_096}
        headers = {"Authorization": "Bearer any"}
        answer = httpx.post(f"{self.model_url}/chat/completions", json=body, headers=headers, timeout=60)
        message = answer.raise_for_status().json()["choices"][0]["message"]
        return {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]}

    def _carry_out(self, api: httpx.Client, at: str, call: dict[str, Any], reply: str) -> dict[str, Any]:
        body = {"arguments": json.loads(call["arguments"]), "reply": reply}
        answer: dict[str, Any] = api.post(f"{at}/tools/{call['name']}", json=body).raise_for_status().json()
        self.calls += 1
        self.refused += not answer["ok"]
        return answer
