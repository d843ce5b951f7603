"""MCP over standard input and output: the same messages, with this machine's database, or with a service elsewhere."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from refinement.mcp import stdio
from tests.api.serving import serving
from tests.commands.calling import Installation, Ran, failed, run
from tests.conftest import House
from tests.mcp.calling import NEW, OLD
from tests.privacy.marker import MARKER

CLIENT = {"capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
META = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}


def line(method: str, number: int | None = None, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    return json.dumps(body).encode() + b"\n"


SESSION = b"".join(
    [
        line("initialize", 1, protocolVersion="2025-06-18", **CLIENT),
        line("notifications/initialized"),
        line("tools/call", 2, name="remember", arguments={"content": f"{MARKER} drinks tea ☕"}),
        b"\n",
        line("tools/call", 3, name="search", arguments={"query": "tea"}),
        b"not JSON\n",
        line("tools/call", 4, name="context", arguments={}, _meta=META),
        line("resources/read", 5, uri="memory://é", _meta=META),
    ]
)


def checked(ran: Ran) -> list[Any]:
    assert (ran.code, MARKER in ran.err) == (0, False), ran.err
    answers = [json.loads(each) for each in ran.out.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, 3, None, 4, 5]
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert "☕" in answers[2]["result"]["structuredContent"]["results"][0]["content"]
    assert answers[3]["error"]["code"] == -32700
    assert MARKER in answers[4]["result"]["structuredContent"]["text"]
    assert answers[5]["error"]["data"] == {"uri": "memory://é"}
    return answers


def test_a_client_uses_this_machines_database(service: Installation) -> None:
    key = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe").json["key"]
    checked(service.manage("mcp", stdin=SESSION, PALIMPSEST_AGENT_KEY=key, ALLOWED_HOSTS="memory.example.org"))
    ran = service.manage("mcp", stdin=SESSION, PALIMPSEST_AGENT_KEY="pal_wrong")
    answers = [json.loads(each) for each in ran.out.splitlines()]
    assert {answer["error"]["message"] for answer in answers} == {"The key is not valid."}
    assert [answer["id"] for answer in answers] == [1, 2, 3, None, 4, 5]


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_client_uses_a_service_elsewhere(house: House, tmp_path: Any) -> None:
    elsewhere = Installation(tmp_path)  # it has no keys
    with serving() as served:
        checked(
            elsewhere.manage("mcp", "--url", f"{served.url}/mcp", stdin=SESSION, PALIMPSEST_AGENT_KEY=house.ada_key)
        )
    assert MARKER not in "".join(served.log)


Respond = Callable[[httpx.Request], httpx.Response]


def answered(respond: Respond, *lines: bytes) -> list[Any]:
    transport = httpx.MockTransport(respond)
    with httpx.Client(base_url="https://memory.example.org", transport=transport) as service:
        return [json.loads(each) for each in stdio.answers(lines, service)]


def refuse(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(MARKER)


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (lambda _: httpx.Response(502, text=f"<html>{MARKER}"), "The service answered with HTTP 502."),
        (lambda _: httpx.Response(200, text="[]"), "The service answered with HTTP 200."),
        (lambda _: httpx.Response(301), "The service answered with HTTP 301."),
        (lambda _: httpx.Response(400, json={"errors": [{"detail": "Check it."}]}), "Check it."),
        (lambda _: httpx.Response(400, json={"errors": {"detail": 5}}), "The service answered with HTTP 400."),
        (refuse, "The service does not answer (ConnectError)."),
    ],
)
def test_a_service_that_fails_is_an_error_of_each_request(respond: Respond, reason: str) -> None:
    answers = answered(respond, line("ping", 7), line("notifications/initialized"), line("ping", 8))
    assert [(answer["id"], answer["error"]["message"]) for answer in answers] == [(7, reason), (8, reason)]


def test_no_line_of_a_client_ends_the_program() -> None:
    lines = (b"[" * 200_000, b"\xff", b'{"id": "\\ud800", "method": "tools/call", "params": {"name": "\\ud800"}}', b"7")
    answers = answered(lambda _: httpx.Response(200, json={"jsonrpc": "2.0", "id": None, "error": {}}), *lines)
    assert [answer["id"] for answer in answers] == [None, None, "\ud800", None]


def test_the_headers_repeat_the_message() -> None:
    seen: list[httpx.Headers] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": OLD}})

    modern = {"name": "caf\u00e9", "arguments": {}, "_meta": META}
    answered(respond, line("initialize", 1, **CLIENT), line("ping", 2), line("tools/call", 3, **modern))
    sent = [[headers.get(name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name")] for headers in seen]
    assert sent == [[None, "initialize", None], [OLD, "ping", None], [NEW, "tools/call", "=?base64?Y2Fmw6k=?="]]


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [
        ((), "", "set PALIMPSEST_AGENT_KEY"),
        ((), "pal_\u2026", "set PALIMPSEST_AGENT_KEY"),
        ((), "pal_a\nb", "set PALIMPSEST_AGENT_KEY"),
        (("--url", "memory.example.org"), "x", "--url: must begin with https://"),
        (("--url", "ftp://memory.example.org"), "x", "--url: must begin with https://"),
        (("--url", "https:///mcp"), "x", "--url: must begin with https://"),
    ],
)
def test_a_wrong_start_says_what_is_needed(
    arguments: tuple[str, ...], key: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    failed(run("mcp", *arguments), 2, words)
