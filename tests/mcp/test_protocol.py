"""The messages of MCP: both generations of the protocol, and every kind of bad message. None is a 5xx."""

import base64
import json
import time
from typing import Any

import pytest
from django.core.cache import cache
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from memory.access import tenants
from memory.agents import lifecycle
from memory.api.base.bodies import MAX_DEPTH
from memory.models import Agent
from tests.conftest import House
from tests.mcp.calling import NEW, OLD, Mcp
from tests.steps import ME

PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CLIENT: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), (OLD, OLD), (NEW, OLD), ("1999-01-01", OLD)],
)
def test_a_client_and_the_server_agree_on_a_version(asked: str, agreed: str, client: Mcp) -> None:
    body = {**PING, "method": "initialize", "params": {"protocolVersion": asked, **CLIENT}}
    result = client.send(body).json["result"]
    assert (result["protocolVersion"], set(result["capabilities"])) == (agreed, {"tools", "prompts", "resources"})
    assert "long-term memory" in result["instructions"]


def test_a_newer_client_discovers_the_server(house: House) -> None:
    result = Mcp(house.ada_key, NEW).result("server/discover")
    assert (result["supportedVersions"], result["cacheScope"]) == ([NEW], "private")


def test_each_list_is_complete(each: Mcp) -> None:
    names = [tool["name"] for tool in each.result("tools/list")["tools"]]
    assert names == [
        *("remember", "search", "fetch", "context", "list_memories", "update_memory", "forget", "restore"),
        *("history", "begin_refinement", "knife", "memory"),
    ]
    assert [prompt["name"] for prompt in each.result("prompts/list")["prompts"]] == ["refine"]
    assert [resource["uri"] for resource in each.result("resources/list")["resources"]] == ["memory://context"]
    templates = each.result("resources/templates/list")["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["memory://{id}", "memory://audit/{seq}"]


def test_a_notification_gets_no_body(client: Mcp) -> None:
    answer = client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status, answer.content) == (202, b"")


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH + b"}"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, INVALID_REQUEST),
        (b"{", 400, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, PARSE_ERROR),
        (b"\xff", 400, PARSE_ERROR),
        (b"[" * 100_000, 400, PARSE_ERROR),
        (DEEP, 400, PARSE_ERROR),
        (b'"ping"', 400, INVALID_REQUEST),
        (json.dumps([PING]).encode(), 400, INVALID_REQUEST),
        ({"jsonrpc": "1.0"}, 400, INVALID_REQUEST),
        ({"id": None}, 400, INVALID_REQUEST),
        ({"id": 1.5}, 400, INVALID_REQUEST),
        ({"id": {}}, 400, INVALID_REQUEST),
        ({"params": []}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, INVALID_REQUEST),
        ({"method": "nothing"}, 200, METHOD_NOT_FOUND),
        ({"method": "logging/setLevel", "params": {"level": "info"}}, 200, METHOD_NOT_FOUND),
        ({"method": "tools/call", "params": {"name": 5}}, 200, INVALID_PARAMS),
        ({"method": "tools/call", "params": {"name": "no"}}, 200, INVALID_PARAMS),
        ({"method": "prompts/get", "params": {"name": "no"}}, 200, INVALID_PARAMS),
        ({"method": "resources/read", "params": {"uri": "x:y"}}, 200, INVALID_PARAMS),
        ({"method": "resources/read", "params": {"uri": "memory://9"}}, 200, INVALID_PARAMS),
        ({"method": "resources/read", "params": {"uri": "memory://\u0661"}}, 200, INVALID_PARAMS),
    ],
)
def test_a_bad_message_gets_an_error(body: bytes | dict[str, Any], status: int, code: int, client: Mcp) -> None:
    answer = client.send(None, raw=body if isinstance(body, bytes) else json.dumps(PING | body).encode())
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "change", "status", "code"),
    [
        ("ping", {}, 404, METHOD_NOT_FOUND),
        ("initialize", {}, 404, METHOD_NOT_FOUND),
        ("subscriptions/listen", {"params": {"notifications": {}}}, 404, METHOD_NOT_FOUND),
        ("tools/list", {"meta": {"io.modelcontextprotocol/protocolVersion": None}}, 400, INVALID_PARAMS),
        ("tools/list", {"meta": {"io.modelcontextprotocol/clientCapabilities": None}}, 400, INVALID_PARAMS),
        ("tools/list", {"meta": {"io.modelcontextprotocol/protocolVersion": "x"}}, 400, HEADER_MISMATCH),
        ("tools/list", {"headers": {"mcp-protocol-version": OLD}}, 400, HEADER_MISMATCH),
        ("tools/list", {"headers": {"mcp-method": "tools/call"}}, 400, HEADER_MISMATCH),
        ("tools/list", {"headers": {"mcp-method": None}}, 400, HEADER_MISMATCH),
        ("tools/call", {"params": {"name": "context"}, "headers": {"mcp-name": "forget"}}, 400, HEADER_MISMATCH),
        ("tools/call", {"params": {"name": "context"}, "headers": {"mcp-name": "=?base64?x?="}}, 400, HEADER_MISMATCH),
    ],
)
def test_a_bad_message_of_a_newer_client(
    method: str, change: dict[str, Any], status: int, code: int, house: House
) -> None:
    client = Mcp(house.ada_key, NEW)
    body, headers = client.message(method, {"name": "context", "uri": "memory://context"} | change.get("params", {}))
    body["params"]["_meta"] = _changed(body["params"]["_meta"], change.get("meta", {}))
    answer = client.send(body, **_changed(headers, change.get("headers", {})))
    assert (answer.status, answer.json["error"]["code"], answer.json["id"]) == (status, code, body["id"])


def _changed(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """With other values. None removes a value."""
    return {name: value for name, value in (values | change).items() if value is not None}


@pytest.mark.parametrize("version", ["1999-01-01", "2027-01-01"])
def test_an_unknown_version_is_named(version: str, house: House) -> None:
    client = Mcp(house.ada_key, NEW)
    body, headers = client.message("tools/list", {})
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
    error = client.send(body, **headers | {"mcp-protocol-version": version}).json["error"]
    assert (error["code"], error["data"]) == (UNSUPPORTED_PROTOCOL_VERSION, {"supported": [NEW], "requested": version})


def test_a_header_may_be_encoded(house: House, ada: Agent) -> None:
    client = Mcp(house.ada_key, NEW)
    body, headers = client.message("resources/read", {"uri": "memory://context"})
    encoded = base64.b64encode(b"memory://context").decode()
    assert client.send(body, **headers | {"mcp-name": f"=?base64?{encoded}?="}).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("http://testserver.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://https://testserver/x", 403),
        ("http://testserver", 200),
        ("http://127.0.0.1:8000", 200),
    ],
)
def test_a_page_of_another_site_is_refused(origin: str, status: int, client: Mcp) -> None:
    assert client.send(PING, origin=origin).status == status


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_allowed(method: str, client: Mcp) -> None:
    assert client.send(None, method=method).status == 405


def test_a_wrong_host_and_a_slash_too_many(client: Mcp, settings: Any) -> None:
    assert (
        client._client.post(
            "/mcp/", PING, "application/json", headers={"authorization": f"Bearer {client.key}"}
        ).status_code
        == 200
    )
    settings.ALLOWED_HOSTS = ["memory.example.org"]
    assert "ALLOWED_HOSTS" in client.send(PING).json["errors"][0]["detail"]


def test_a_body_has_a_limit_and_one_encoding(client: Mcp, settings: Any) -> None:
    assert client.send(PING, content_encoding="gzip").status == 415
    settings.API_BODY_BYTES = 50
    assert client.send(PING | {"params": {"a": "x" * 50}}).status == 413


def test_only_a_valid_key_of_an_agent_is_accepted(house: House, ada: Agent) -> None:
    for key, status in (("", 401), ("pal_x", 401), (tenants.issue_key("acme"), 403)):
        answer = Mcp(key).send(PING)
        assert (answer.status, answer.json["error"]["code"]) == (status, INVALID_REQUEST)
        assert (answer.headers.get("WWW-Authenticate") is None) == (status == 403)
    key = lifecycle.issue_key(ada, ME)
    lifecycle.revoke_key(ada, key.split("_")[1], ME)
    assert Mcp(key).send(PING).status == 401


def test_the_rate_of_a_key_is_limited(client: Mcp, settings: Any) -> None:
    settings.API_RATE = 2
    cache.clear()
    assert [client.send(PING).status for _ in range(3)] == [200, 200, 429]


def seconds(client: Mcp, raw: bytes, headers: dict[str, str]) -> float:
    """The CPU time of a request that succeeds."""
    started = time.thread_time()
    assert client.send(None, raw=raw, **headers).status == 200
    return time.thread_time() - started


@pytest.mark.parametrize("version", [OLD, NEW])
def test_many_wrong_values_in_params_take_no_longer_than_right_ones(version: str, house: House) -> None:
    """Models of the protocol made 15 errors for each: 300 kB took half a minute and gigabytes."""
    client, took = Mcp(house.ada_key, version), {}
    for name in ("inputResponses", "ignored"):
        body, headers = client.message("tools/call", {"name": "context", name: {"a": {"content": [{}] * 60_000}}})
        raw = json.dumps(body).encode()
        took[name] = min(seconds(client, raw, headers) for _ in range(3))  # a garbage collection can take longer
    assert took["inputResponses"] < 5 * took["ignored"]


def test_a_tool_has_a_limit_of_arguments(client: Mcp) -> None:
    answer = client.request("tools/call", name="list_memories", arguments=dict.fromkeys(map(str, range(101)), 1))
    assert answer.json["error"]["code"] == INVALID_PARAMS
    assert client.request("tools/call", name="fetch", arguments=[1]).json["error"]["code"] == INVALID_PARAMS
