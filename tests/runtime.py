"""An agent's runtime. It uses the API and a model's server, and imports nothing of the project."""

import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Runtime:
    """Refines the agent whose key it holds, with a model whose server speaks OpenAI's protocol."""

    address: str
    key: str
    model_url: str
    calls: int = 0
    refused: int = 0

    def refine(self) -> dict[str, Any]:
        """Run a whole session. Return it as the API shows it at the end."""
        with self._client() as api:
            session = api.post("refinement-sessions", json={"driver": "runtime"}).raise_for_status().json()
            while self._run_batch(api, session):
                pass
            return dict(api.get(f"refinement-sessions/{session['id']}").raise_for_status().json())

    def export(self) -> str:
        with self._client() as api:
            return api.get("export?discarded=true").raise_for_status().text

    def remember(self, lines: bytes) -> int:
        headers = {"Content-Type": "application/x-ndjson"}
        with self._client() as api:
            return int(api.post("import", content=lines, headers=headers).raise_for_status().json()["imported"])

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{self.address}/api/v1/", headers=headers, timeout=60)

    def _run_batch(self, api: httpx.Client, session: dict[str, Any]) -> bool:
        """Run one batch, in a conversation of its own. Return whether another one follows."""
        path = f"refinement-sessions/{session['id']}"
        briefing = api.get(f"{path}/briefing").raise_for_status().json()
        messages = list(briefing["messages"])
        for number in range(session["max_steps"] + 1):
            reply = self._reply(messages, briefing["tools"])
            messages.append(reply)
            for call in reply["tool_calls"]:
                is_last = call is reply["tool_calls"][-1]
                result = self._call(api, path, call["function"], f"{briefing['batch']}-{number}", is_last)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result["result"])})
                if result["session_ended"] or result["batch_done"]:
                    return bool(result["batch_done"])
        raise RuntimeError("the session continues after its last step")

    def _reply(self, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        body = {"model": "scripted", "messages": messages, "tools": tools, "max_tokens": 4_096}
        headers = {"Authorization": "Bearer any"}
        response = httpx.post(f"{self.model_url}/chat/completions", json=body, headers=headers, timeout=60)
        message = response.raise_for_status().json()["choices"][0]["message"]
        return {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]}

    def _call(self, api: httpx.Client, path: str, call: dict[str, Any], reply: str, is_last: bool) -> dict[str, Any]:
        body = {"arguments": json.loads(call["arguments"]), "reply": reply, "last": is_last}
        result: dict[str, Any] = api.post(f"{path}/tools/{call['name']}", json=body).raise_for_status().json()
        self.calls += 1
        self.refused += not result["ok"]
        return result
