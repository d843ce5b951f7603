"""Calls of the API, with a key, a body and a response."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.test import Client

BASE = "/api/v1/"
NDJSON = "application/x-ndjson"


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
        """The codes of an error response, whose form is checked."""
        body = self.json
        assert "errors" in body, f"no error: {self.status}"
        assert all(set(error) == {"code", "detail", "attr"} for error in body["errors"])
        codes = [error["code"] for error in body["errors"]]
        prompts = {"memory_disabled", "category_disabled"} & {*codes}
        assert set(body) == {"type", "errors", *(["prompt"] if prompts else [])}, body
        return codes

    @property
    def attrs(self) -> list[str | None]:
        assert self.codes
        return [error["attr"] for error in self.json["errors"]]

    @property
    def ids(self) -> list[int]:
        """The ids of a list's results."""
        return [result["id"] for result in self.json["results"]]


@dataclass(frozen=True)
class Caller:
    """A program with a key, or without one."""

    key: str = ""
    base: str = BASE

    @cached_property
    def _client(self) -> Client:
        return Client(raise_request_exception=False)

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, kind: str = "", **headers: str
    ) -> Answer:
        """`body` is sent as JSON; `raw` as it is, with the content type `kind`. The header If-Match is `if_match`."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            sent["Authorization"] = f"Bearer {self.key}"
        kind = kind or "application/json"
        response = self._client.generic(method, self.base + path, content, content_type=kind, headers=sent)
        received = b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]
        return Answer(response.status_code, response.headers, received)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("PATCH", path, body, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self.ask("DELETE", path, **more)
