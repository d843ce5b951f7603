"""One memory, over every interface: the API, MCP, the tool `memory` and the memory stores. A session over all of them
can be rolled back to the byte."""

from typing import Any

import pytest

from memory.models import Agent, Memory
from memory.time_machine.rollback import What, preview, roll_back
from tests.api.calling import Caller
from tests.api.test_stores import Client, client
from tests.conftest import House
from tests.mcp.calling import Mcp
from tests.refining import filler
from tests.steps import PERSON, fresh, problems, remember

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


def file(mcp: Mcp, command: str, **arguments: Any) -> str:
    result = mcp.result("tools/call", name="memory", arguments={"command": command, **arguments})
    assert not result["isError"], result
    return str(result["content"][0]["text"])


@pytest.fixture
def filled(house: House) -> tuple[Caller, Mcp, Client]:
    """Memories 1 to 4, each stored over another interface."""
    api, mcp, stores = Caller(house.ada_key), Mcp(house.ada_key), client(house.ada_key)
    api.post("memories", {"content": "A quince of the API."})
    mcp.called("remember", content="A quince of MCP.")
    file(mcp, "create", path="/memories/tool.md", file_text="A quince of the tool.")
    stores("POST", "memory_stores/memstore_1/memories", {"path": "/store.md", "content": "A quince of the store."})
    return api, mcp, stores


def test_what_one_interface_stores_the_others_find(filled: tuple[Caller, Mcp, Client]) -> None:
    api, mcp, stores = filled
    assert {each["id"] for each in api.post("memories/search", {"q": "quince"}).json["results"]} == {1, 2, 3, 4}
    assert {each["id"] for each in mcp.called("search", query="quince")["results"]} == {"1", "2", "3", "4"}
    listed = stores("GET", "memory_stores/memstore_1/memories?view=full").json["data"]
    assert {each["path"]: each["content"] for each in listed} == {
        "/tool.md": "A quince of the tool.",
        "/store.md": "A quince of the store.",
    }
    assert "A quince of the store." in file(mcp, "view", path="/memories/store.md")
    assert mcp.called("fetch", id=4)["content"] == "A quince of the store."


def test_a_session_over_all_of_them_is_rolled_back_to_the_byte(filled: tuple[Caller, Mcp, Client], ada: Agent) -> None:
    api, mcp, stores = filled
    remember(ada, *(filler(40, number) for number in range(10)))
    before = {row.number: (bytes(row.sealed), row.store, row.beneath_at) for row in Memory.objects.of(ada)}
    number = mcp.called("begin_refinement")["session"]

    def knife(action: str, **arguments: Any) -> Any:
        return mcp.called("knife", action=action, arguments=arguments)

    knife("search_memories", query="quince")
    assert knife("promote_memory", id=3)["ok"]
    merge = {"ids_to_merge": [1, 2], "new_content": "A quince of the API, and a quince of MCP."}
    assert knife("consolidate_memories", **merge)["ok"]
    assert knife("delete_memory", id=4)["ok"]
    assert knife("complete_refinement", summary="Merged.")["ok"]
    assert stores("GET", "memory_stores/memstore_1/memories/mem_4").status == 404

    taken = stores("POST", "memory_stores/memstore_1/memories", {"path": "/store.md", "content": "new"}).json["id"]
    wanted = What("session", number)
    assert 4 in dict(preview(fresh(ada), wanted).conflicts)
    stores("DELETE", f"memory_stores/memstore_1/memories/{taken}")
    roll_back(fresh(ada), wanted, PERSON)
    rows = Memory.objects.of(ada).numbered(before)
    assert {row.number: (bytes(row.sealed), row.store, row.beneath_at) for row in rows} == before
    assert "A quince of the store." in file(mcp, "view", path="/memories/store.md")
    assert api.get("memories/1").json["content"] == "A quince of the API."
    assert problems(ada) == []
