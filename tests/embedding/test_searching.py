"""Search by words and by meaning: the same results over the API, MCP and `/retrieve`."""

from typing import Any

import pytest

from memory.access.authentication import new_request
from memory.agents import lifecycle
from memory.consent import erasure, requests
from memory.models import Agent, Vector
from memory.recording.retrieval import retrieve
from memory.search import cache, embedding
from memory.search.query import parse
from memory.writing import edits, operations
from refinement.embedding import embed
from tests.api.calling import Caller
from tests.commands.calling import run
from tests.conftest import House
from tests.embedding.conftest import EMBEDDER
from tests.embedding.server import EmbeddingServer
from tests.embedding.steps import found, state, vectors
from tests.mcp.calling import Mcp
from tests.rules import recordings
from tests.steps import ME, PERSON, fresh, remember

pytestmark = pytest.mark.database
TEXTS = ("Ana fixed the car.", "Bob has a postgres server.", "The office is in Cork.", "Carl likes tea.")


@pytest.fixture
def ledger(ada: Agent) -> Agent:
    remember(ada, *TEXTS, category="technical")
    assert embed(ada.pk) == "embedded"
    return ada


def test_every_interface_finds_the_meaning(ledger: Agent, house: House, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    api = Caller(house.ada_key)
    assert api.ask("POST", "memories/search", {"q": "vehicle repair"}).ids == [1]
    mcp = Mcp(house.ada_key).called("search", query="vehicle repair")
    assert [each["id"] for each in mcp["results"]] == ["1"]
    assert [read.memory.number for read in retrieve(fresh(ledger), "vehicle repair").reads] == [1]
    assert found(ledger, "which database") == [2]


def test_without_an_embedder_only_words_are_found(house: House, server: EmbeddingServer) -> None:
    remember(house.ada, *TEXTS)
    assert found(house.ada, "vehicle repair") == []
    assert found(house.ada, "car") == [1]
    assert embed(house.ada.pk) == "nothing"
    assert server.texts == []


def test_a_command_says_that_only_words_were_searched(
    ledger: Agent, house: House, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert "words only" not in run("recall", "acme/ada", "vehicle repair").err
    server.status = 404
    said = run("recall", "acme/ada", "vehicle repair").err
    assert "searched by words only, because ollama/nomic did not answer" in said
    assert "correct the agent's embedder or OLLAMA_BASE_URL" in str(_problem_of(ledger))


def _problem_of(agent: Agent) -> str:
    remember(agent, "Dana has a boat.")
    embed(agent.pk)
    return state(agent).problem


@pytest.mark.parametrize("path", ["memories/search", "retrieve"])
def test_a_search_that_waits_for_the_embedder_shows_nothing_of_an_erased_silo(
    ledger: Agent, house: House, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    original = embedding.embed_query
    assert original is not None

    def erase(*arguments: Any) -> Any:
        made = original(*arguments)
        with new_request():
            erasure.erase(fresh(ledger), requests.ask_erasure(fresh(ledger), PERSON, reason="x").number, ME)
        return made

    monkeypatch.setattr(embedding, "embed_query", erase)
    refused = Caller(house.ada_key).ask("POST", path, {"q" if "search" in path else "query": "vehicle repair"})
    assert (refused.codes, b"car" in refused.content) == (["erased"], False)
    assert not [held for held in cache._held if held[0] == ledger.pk]


def test_a_wrong_embedder_is_named(house: House) -> None:
    refused = Caller(house.ada_key).ask("PATCH", "agent", {"embedder": "cohere/x"})
    assert (refused.status, refused.json["errors"][0]["attr"]) == (422, "embedder")


def test_operators_and_filters_apply_to_the_meaning(ledger: Agent) -> None:
    assert found(ledger, "vehicle -fixed") == []
    assert found(ledger, 'vehicle "the car"') == [1]
    assert found(ledger, "vehicle", category="behavioral") == []
    assert found(ledger, "vehicle", category="technical") == [1]
    assert found(ledger, "vehicle repair", without=frozenset({"technical"})) == []


def test_a_filter_that_allows_few_memories_still_finds_them(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.search.meaning.LOOK", 4)
    remember(ada, *[f"Ana fixed car number {number}." for number in range(20)])
    remember(ada, "Bob fixed his car.", category="technical")
    embed(ada.pk)
    assert found(ada, "vehicle repair", category="technical") == [21]


def test_layers_beneath_are_found(ledger: Agent) -> None:
    operations.consolidate(fresh(ledger), [3, 4], "Carl drinks in the Cork office.", ME)
    embed(ledger.pk)
    assert set(found(ledger, "beverage")) == {4, 5}


def test_a_changed_memory_loses_its_meaning_until_it_is_embedded_again(ledger: Agent) -> None:
    operations.revise(fresh(ledger), 1, ME, content="Ana sold the house.")
    assert found(ledger, "vehicle repair") == []
    embed(ledger.pk)
    assert found(ledger, "vehicle repair") == []
    operations.revise(fresh(ledger), 1, ME, content="Ana fixed the automobile.")
    embed(ledger.pk)
    assert found(ledger, "vehicle repair") == [1]


def test_a_discarded_memory_is_not_found_until_it_is_restored(ledger: Agent) -> None:
    operations.discard(fresh(ledger), [1], ME)
    assert found(ledger, "vehicle repair") == []
    operations.restore(fresh(ledger), [1], ME)
    assert found(ledger, "vehicle repair") == [1]


def test_the_vectors_of_two_agents_never_meet(ledger: Agent, house: House) -> None:
    bob = lifecycle.change(house.bob, ME, embedder=EMBEDDER)
    remember(house.bob, "Bob mended a vehicle.")
    embed(house.bob.pk)
    assert found(bob, "car repair") == [1]
    Vector.objects.filter(agent=ledger, number=1).update(agent=bob, number=9)  # SQL moves a vector
    Vector.objects.filter(agent=ledger, number=2).update(agent=bob, number=1, embedder="moved")
    cache.forget()
    assert found(bob, "car repair") == [1]
    assert found(ledger, "vehicle repair") == []


@pytest.mark.parametrize("change", [{"sealed": b"x" * 400}, {"embedder": "ollama/other"}, {"digest": b"x" * 32}])
def test_a_vector_that_sql_changed_is_not_used(ledger: Agent, change: dict[str, Any]) -> None:
    Vector.objects.filter(agent=ledger, number=1).update(**change)
    cache.forget()
    assert found(ledger, "vehicle repair") == []
    assert found(ledger, "car") == [1]
    assert found(ledger, "beverage") == [4]


def test_a_locked_agent_asks_no_provider(ledger: Agent, server: EmbeddingServer) -> None:
    before = len(server.texts)
    with edits.locked(fresh(ledger)) as row:
        assert embedding.vector_of(row, parse("vehicle repair")) is None
    assert len(server.texts) == before


def test_a_closed_category_is_not_found_by_its_meaning(ledger: Agent) -> None:
    recordings.off(ledger, "technical")
    assert found(ledger, "vehicle repair") == []
    assert vectors(ledger) == {}
    recordings.settings(ledger)
    assert state(ledger).waiting == 4
    assert embed(ledger.pk) == "embedded"
    assert found(ledger, "vehicle repair") == [1]
