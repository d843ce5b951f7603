"""Every tool, prompt and resource of MCP with marked memories and arguments: only the agent's own side receives the
marker."""

from typing import Any

import pytest

from memory.access import tenants
from memory.search import cache
from refinement.mcp.tools import ALL
from tests import steps
from tests.conftest import House
from tests.mcp.calling import NEW, OLD, Mcp
from tests.privacy.watch import FAULTS, Watch, failing

pytestmark = pytest.mark.database

# The arguments of each tool, with M for the marker.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "remember": {"content": "M drinks tea", "tags": ["M"], "idempotency_key": "M"},
    "search": {"query": 'M "M drinks" -tag:M', "tags": ["M"]},
    "fetch": {"id": 1},
    "context": {},
    "list_memories": {},
    "update_memory": {"id": 1, "content": "M again", "tags": ["M again"]},
    "forget": {"id": 2},
    "restore": {"id": 2},
    "history": {"entry": 3},
    "begin_refinement": {},
    "knife": {"action": "search_memories", "arguments": {"query": 'M "M" tag:M'}, "reply": "M"},
    "memory": {"command": "create", "path": "/memories/M/M", "file_text": "M"},
}
MESSAGES = [("tools/call", {"name": name, "arguments": given}) for name, given in ARGUMENTS.items()]
MESSAGES += [("prompts/get", {"name": "refine"}), ("tools/call", {"name": "M"}), ("M", {"M": "M"})]
MESSAGES += [("resources/read", {"uri": uri}) for uri in ("memory://context", "memory://1", "memory://audit/3", "M:M")]


def test_every_tool_has_a_row_here() -> None:
    assert set(ARGUMENTS) == {tool.listed["name"] for tool in ALL}


@pytest.fixture
def filled(watch: Watch, house: House, settings: Any) -> House:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    steps.remember(house.ada, *(watch.text(f"keeps a {thing}") for thing in ("boat", "dog")), tags=(watch.marker,))
    steps.remember(house.bob, "coffee")
    return house


def marked(value: Any, mark: str) -> Any:
    if isinstance(value, dict):
        return {marked(name, mark): marked(inner, mark) for name, inner in value.items()}
    if isinstance(value, list):
        return [marked(inner, mark) for inner in value]
    return value.replace("M", mark) if isinstance(value, str) else value


@pytest.mark.parametrize("version", [OLD, NEW])
def test_no_message_leaks(version: str, watch: Watch, filled: House) -> None:
    own, mark = Mcp(filled.ada_key, version), watch.marker
    for method, params in MESSAGES:
        for key in ("", f"pal_{mark}", tenants.issue_key("globex")):
            answer = Mcp(key, version).request(marked(method, mark), **marked(params, mark))
            assert watch.response(answer).status in (401, 403)
        assert own.request(marked(method, mark), **marked(params, mark)).status < 500
    reads = {name: given for name, given in ARGUMENTS.items() if "M" not in str(given)}
    for name, given in reads.items():
        watch.response(Mcp(filled.bob_key, version).request("tools/call", name=name, arguments=given))
    for raw in (f'{{"{mark}": 1}}', f'{{"{mark}', f'["{mark}"]', f'"{mark}"', f'{{"{mark}": "\\ud800"}}'):
        assert watch.response(own.send(None, raw=raw.encode())).status == 400
    for name, given in ARGUMENTS.items():
        for argument in {**given, mark: mark}:
            for value in (f"{mark}\0", [mark], {mark: mark}, mark * 1_000):
                answer = own.request("tools/call", name=name, arguments={**marked(given, mark), argument: value})
                assert answer.status < 500
    headers = {"origin": f"https://{mark}", "user_agent": mark, "mcp_session_id": mark, "mcp_protocol_version": mark}
    for header, value in headers.items():
        watch.response(own.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **{header: value}))


@pytest.mark.parametrize("fault", FAULTS)
def test_no_tool_leaks_in_a_fault(fault: str, watch: Watch, filled: House, monkeypatch: pytest.MonkeyPatch) -> None:
    own, failures = Mcp(filled.ada_key), 0
    with failing(fault, monkeypatch):
        for method, params in MESSAGES:
            cache.forget()
            answer = own.request(marked(method, watch.marker), **marked(params, watch.marker))
            if answer.status >= 500 or '"isError":true' in answer.content.decode():
                watch.response(answer)
                failures += 1
    assert failures
