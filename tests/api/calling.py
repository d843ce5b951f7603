"""Calling the API as a program does: a key, a body, an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.test import Client

BASE = "/api/v1/"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def codes(self) -> list[str]:
        """Of an error, told in the API's one form."""
        told = self.json
        assert "errors" in told, f"no error: {self.status}"
        assert all(set(error) == {"code", "detail", "attr"} for error in told["errors"])
        asks = {"memory_disabled", "category_disabled"} & {error["code"] for error in told["errors"]}
        assert set(told) == {"type", "errors", *(["prompt"] if asks else [])}, told
        return [error["code"] for error in told["errors"]]

    @property
    def attrs(self) -> list[str | None]:
        assert self.codes
        return [error["attr"] for error in self.json["errors"]]


@dataclass(frozen=True)
class Caller:
    """A program with a key, or without one."""

    key: str = ""

    @cached_property
    def _client(self) -> Client:
        return Client(raise_request_exception=False)

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, kind: str = "", **headers: str
    ) -> Answer:
        """`body` is sent as JSON; `raw` as it is, as `kind`. `headers` are named if_match for If-Match."""
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            given["Authorization"] = f"Bearer {self.key}"
        kind = kind or "application/json"
        answer = self._client.generic(method, BASE + path, sent, content_type=kind, headers=given)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
        return Answer(answer.status_code, answer.headers, content)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("PATCH", path, body, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self.ask("DELETE", path, **more)
