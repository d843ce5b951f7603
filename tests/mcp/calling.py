"""An MCP client over HTTP, of both generations of the protocol, whose results are checked against the protocol."""

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import jsonschema
from django.test import Client
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY, methods

from refinement.mcp import tools
from refinement.mcp.messages import NAMED
from tests.api.calling import Answer

OLD, NEW = "2025-11-25", "2026-07-28"
OUTPUTS = {tool.listed["name"]: tool.listed.get("outputSchema") for tool in tools.ALL}


@dataclass(frozen=True)
class Mcp:
    """A client with a key."""

    key: str = ""
    version: str = OLD

    @cached_property
    def _client(self) -> Client:
        return Client(raise_request_exception=False)

    @cached_property
    def _ids(self) -> Any:
        return count(1)

    def send(self, body: Any, *, raw: bytes | None = None, method: str = "POST", **headers: str) -> Answer:
        content = json.dumps(body).encode() if raw is None else raw
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            sent.setdefault("authorization", f"Bearer {self.key}")
        response = self._client.generic(method, "/mcp", content, content_type="application/json", headers=sent)
        return Answer(response.status_code, response.headers, response.content)

    def message(self, method: str, params: Any) -> tuple[dict[str, Any], dict[str, str]]:
        """A request, and its headers."""
        headers = {"mcp-protocol-version": self.version}
        if self.version == NEW:
            meta = {PROTOCOL_VERSION_META_KEY: NEW, CLIENT_CAPABILITIES_META_KEY: {}}
            params = {**params, "_meta": meta}
            headers |= {"mcp-method": method}
            headers |= {"mcp-name": params[NAMED[method]]} if method in NAMED else {}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}, headers

    def request(self, method: str, **params: Any) -> Answer:
        body, headers = self.message(method, params)
        return self.send(body, **headers)

    def result(self, method: str, **params: Any) -> Any:
        """The result of a request that succeeds."""
        answer = self.request(method, **params)
        assert answer.status == 200, answer.content
        result = answer.json["result"]
        methods.validate_server_result(method, self.version, result)
        return result

    def called(self, name: str, /, **arguments: Any) -> Any:
        """The structured result of a tool that succeeds."""
        result = self.result("tools/call", name=name, arguments=arguments)
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        jsonschema.validate(result["structuredContent"], OUTPUTS[name])
        return result["structuredContent"]

    def refused(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a tool that is refused: its code, detail and field."""
        result = self.result("tools/call", name=name, arguments=arguments)
        assert result["isError"], result
        [error] = json.loads(result["content"][0]["text"])["errors"]
        return dict(error)
