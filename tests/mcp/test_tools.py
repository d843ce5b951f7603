"""The tools, the prompt and the resources: what they return is what the API returns."""

import json
from typing import Any

import pytest

from memory.access.authentication import new_request
from memory.agents import lifecycle, rule_changes
from memory.models import Agent
from memory.search import reading
from refinement.models import RefinementSession
from tests import refining, steps
from tests.api.calling import Caller
from tests.conftest import House
from tests.mcp.calling import Mcp
from tests.steps import ME, PERSON, active, says


@pytest.fixture
def runtime(house: House) -> Caller:
    return Caller(house.ada_key)


def test_remember_stores_once_for_a_key_of_repetition(each: Mcp, ada: Agent, runtime: Caller) -> None:
    stored = each.called("remember", content="Ann likes tea", tags=["drink"], idempotency_key="a")
    assert stored == each.called("remember", content="Ann likes tea", tags=["drink"], idempotency_key="a")
    body = runtime.get(f"memories/{stored['id']}").json
    assert {name: stored[name] for name in body} == body
    assert (active(ada), says(ada, 1).tags) == ([1], ("drink",))


@pytest.mark.parametrize("name", ["content", "text", "memory"])
def test_a_memory_has_several_names(name: str, client: Mcp, ada: Agent) -> None:
    client.called("remember", **{name: "Ann likes tea"})
    client.called("update_memory", id="1", **{name: "Ann likes coffee"})
    assert says(ada, 1).content == "Ann likes coffee"


@pytest.mark.parametrize("name", ["q", "query"])
def test_search_returns_what_the_api_returns_with_citations(
    name: str, client: Mcp, ada: Agent, runtime: Caller
) -> None:
    steps.remember(ada, f"Tea is hot. {'x' * 100}\nIt is green.", "milk")
    body = runtime.post("memories/search", {"q": "tea", "limit": 5}).json
    [result] = body["results"]
    cited = {"id": "1", "title": f"Tea is hot. {'x' * 68}", "url": "memory://1"}
    assert client.called("search", **{name: "tea", "limit": 5}) == body | {"results": [result | cited]}


def test_fetch_returns_a_memory_with_its_sources(client: Mcp, ada: Agent, runtime: Caller) -> None:
    refining.opened(ada)
    steps.remember(ada, "Tea is hot", "Tea is green")
    client.called("forget", id=2)
    body = runtime.get("memories/2?lineage=true").json
    more = {"id": "2", "title": "Tea is green", "url": "memory://2", "text": "Tea is green"}
    assert client.called("fetch", id="2") == body | more


def test_context_is_the_block_and_says_when_to_refine(each: Mcp, ada: Agent, runtime: Caller) -> None:
    steps.remember(ada, "Tea is hot")
    block = each.called("context")
    expected = {"text": runtime.get("context").content.decode(), "core_tokens": 3, "budget_tokens": 8_000}
    assert block == {**expected, "refinement_due": ""}
    refining.fill(ada, 9, 1_000)
    assert each.called("context")["refinement_due"] == "over_budget"
    assert each.called("context", max_tokens=10)["text"].count("\n") < 10


def test_lists_and_the_history_have_pages(client: Mcp, ada: Agent, runtime: Caller) -> None:
    steps.remember(ada, "a", "b", "c")
    page = client.called("list_memories", limit=2)
    assert page == runtime.get("memories?limit=2").json
    assert client.called("list_memories", limit=2, cursor=page["next"])["results"][0]["id"] == 3
    assert client.called("history", memory=3) == runtime.get("audit?memory=3").json
    assert client.called("history", entry=3) == runtime.get("audit/3").json


def test_forget_can_be_undone(each: Mcp, ada: Agent) -> None:
    steps.remember(ada, "Tea is hot")
    assert each.called("forget", id=1)["forgotten"] == 1
    assert active(ada) == []
    assert each.called("restore", id=1)["content"] == "Tea is hot"
    assert (active(ada), steps.problems(ada)) == ([1], [])


@pytest.mark.parametrize(
    ("name", "arguments", "code", "attr"),
    [
        ("remember", {}, "required", "content"),
        ("remember", {"content": ""}, "blank", "content"),
        ("remember", {"content": "a", "colour": "red"}, "unknown_field", "body"),
        ("remember", {"content": "a", "idempotency_key": "x" * 201}, "invalid", "Idempotency-Key"),
        ("search", {"query": 5}, "invalid", "q"),
        ("fetch", {}, "invalid", "id"),
        ("fetch", {"id": "1; DROP TABLE memory_memory"}, "invalid", "id"),
        ("fetch", {"id": "٣"}, "invalid", "id"),
        ("fetch", {"id": 9}, "unknown_memory", None),
        ("fetch", {"id": 10**18}, "invalid", "id"),
        ("context", {"max_tokens": -1}, "min_value", "max_tokens"),
        ("list_memories", {"limit": 501}, "max_value", "limit"),
        ("list_memories", {"colour": "red"}, "unknown_field", "body"),
        ("list_memories", {"path": "agent", "name": 1}, "unknown_field", "body"),
        ("context", {"query": "x"}, "unknown_field", "body"),
        ("update_memory", {"id": 1}, "invalid", "body"),
        ("forget", {"id": [1]}, "invalid", "id"),
        ("history", {"entry": "x"}, "invalid", "entry"),
        ("history", {"entry": 99}, "unknown_entry", None),
        ("begin_refinement", {"mode": "half"}, "invalid_choice", "mode"),
        ("knife", {}, "invalid", "action"),
        ("knife", {"action": ["apply"]}, "invalid", "action"),
        ("knife", {"action": "apply"}, "invalid", "session"),
        ("knife", {"action": "apply", "session": "x"}, "invalid", "session"),
        ("knife", {"action": "apply", "session": 7}, "not_found", None),
    ],
)
def test_a_refused_call_says_what_is_wrong(
    name: str, arguments: dict[str, Any], code: str, attr: str | None, client: Mcp, ada: Agent
) -> None:
    steps.remember(ada, "Tea is hot")
    before = steps.state(ada)
    error = client.refused(name, **arguments)
    assert (error["code"], error["attr"]) == (code, attr)
    assert steps.state(ada)["memories"] == before["memories"]


def test_switched_off_memory_is_a_refusal(client: Mcp, ada: Agent) -> None:
    rule_changes.change(ada, PERSON, enabled=False)
    assert client.refused("remember", content="a")["code"] == "memory_disabled"
    assert client.refused("context")["code"] == "memory_disabled"
    assert "error" in client.request("resources/read", uri="memory://context").json
    assert "error" in client.request("prompts/get", name="refine").json


def test_the_resources_are_readable(each: Mcp, ada: Agent, runtime: Caller) -> None:
    steps.remember(ada, "Tea is hot")
    read = {uri: each.result("resources/read", uri=uri)["contents"][0] for uri in ("memory://context", "memory://1")}
    assert read["memory://context"]["text"] == runtime.get("context").content.decode()
    assert read["memory://1"]["text"] == "Tea is hot"
    [entry] = each.result("resources/read", uri="memory://audit/3")["contents"]
    assert (json.loads(entry["text"]), entry["mimeType"]) == (runtime.get("audit/3").json, "application/json")


def test_the_prompt_opens_a_session_and_has_its_briefing(each: Mcp, ada: Agent, runtime: Caller) -> None:
    steps.remember(ada, "Tea is hot", "Tea is green")
    prompt = each.result("prompts/get", name="refine")
    texts = [message["content"]["text"] for message in prompt["messages"]]
    session = RefinementSession.objects.get(agent=ada)
    briefing = runtime.get(f"refinement-sessions/{session.number}/briefing").json
    assert texts[:2] == [message["content"] for message in briefing["messages"]]
    assert json.loads(texts[2].partition("The tools:\n")[2]) == briefing["tools"]
    assert each.result("prompts/get", name="refine") == prompt  # the same session


@pytest.mark.parametrize("driver", ["runtime", "server", "nobody"])
def test_the_client_drives_the_session_that_it_begins(driver: str, client: Mcp, ada: Agent) -> None:
    steps.remember(ada, "Tea is hot")
    assert client.called("begin_refinement", driver=driver)["session"] == 1
    assert RefinementSession.objects.get(agent=ada).driver == "runtime"


def test_a_key_that_ends_during_a_read_gets_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over the API: the key is checked again after each read."""
    steps.remember(house.ada, "Tea is hot")
    client, search = Mcp(house.ada_key), reading.search
    lifecycle.issue_key(house.ada, ME)

    def ended(*args: Any, **options: Any) -> Any:
        with new_request():
            lifecycle.revoke_key(steps.fresh(house.ada), house.ada_key.split("_")[1], ME)
        return search(*args, **options)

    monkeypatch.setattr(reading, "search", ended)
    answer = client.request("tools/call", name="search", arguments={"q": "tea"})
    assert (answer.status, b"Tea" in answer.content) == (401, False)
