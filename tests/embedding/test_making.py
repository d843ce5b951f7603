"""The vectors of an agent's memories: which texts are embedded, when, and when their vectors are removed."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.access import authority
from memory.agents import lifecycle
from memory.consent import claims, erasure, redaction, requests
from memory.errors import AuthorityBroken
from memory.models import Agent, Embedding, Memory
from memory.search import embedding
from memory.writing import operations
from refinement import allowance
from refinement.embedding import embed
from refinement.llm.base import ModelNotConfigured
from refinement.llm.embedders import open_embedder
from tests.conftest import House
from tests.embedding.conftest import EMBEDDER
from tests.embedding.server import EmbeddingServer
from tests.embedding.steps import found, retry, state, vectors
from tests.plans import plans
from tests.rules import recordings
from tests.steps import ME, PERSON, fresh, last_entry, problems, remember

pytestmark = pytest.mark.database


@pytest.mark.parametrize(("embedder", "path"), [("ollama/nomic", "/api/embed"), ("openai/small", "/v1/embeddings")])
def test_each_protocol_embeds_and_counts_tokens(ada: Agent, server: EmbeddingServer, embedder: str, path: str) -> None:
    lifecycle.change(fresh(ada), ME, embedder=embedder)
    remember(ada, "one two", "three four five")
    assert embed(ada.pk) == "embedded"
    assert (server.texts, set(server.paths)) == (["one two", "three four five"], {path})
    assert vectors(ada) == {1: embedder, 2: embedder}
    assert Embedding.objects.get(agent=ada).tokens == allowance.spent(ada.tenant_id) == 5
    assert state(ada) == embedding.State(embedder, embedder, 2, 0, "")


def test_memories_are_embedded_in_batches_and_a_kill_loses_nothing(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 2)
    remember(ada, *"abcde")
    batch = embedding.next_batch(fresh(ada), embedding.take(ada) or Embedding(), 2)
    assert batch is not None
    assert list(batch.texts) == [1, 2]
    assert embed(ada.pk) == "taken"
    server.tells = lambda texts: _kill() if texts == ["c", "d"] else None
    assert retry(ada) == "failed"
    assert list(vectors(ada)) == [1, 2]
    server.recover()
    server.tells = None
    assert retry(ada) == "embedded"
    assert list(vectors(ada)) == [1, 2, 3, 4, 5]
    assert server.texts.count("a") == 1


def _kill() -> None:
    raise ConnectionAbortedError


def test_private_and_closed_categories_and_empty_texts_are_not_embedded(ada: Agent, server: EmbeddingServer) -> None:
    recordings.off(ada, "topic")
    recordings.settings(ada, categories__session__storage_location="private")
    for category in ("personal", "sensitive", "session", "technical"):
        remember(ada, f"about {category}", category=category, project="p" if category == "session" else "")
    embed(ada.pk)
    assert server.texts == ["about technical"]
    assert state(ada).waiting == 0


def test_a_memory_that_changes_meanwhile_gets_the_vector_of_its_new_text(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana has a boat.", "Bob has a car.")

    def change(_: object) -> None:
        server.tells = None
        operations.revise(fresh(ada), 1, ME, content="Ana has tea.")

    _during_a_call(server, change)
    assert embed(ada.pk) == "embedded"
    assert server.texts == ["Ana has a boat.", "Bob has a car.", "Ana has tea."]
    assert found(ada, "beverage") == [1]


@pytest.mark.sqlite
def test_only_memories_with_a_vector_are_read_when_vectors_are_removed(ada: Agent, server: EmbeddingServer) -> None:
    """With one vector, SQLite read all rows of the agent under its lock."""
    remember(ada, "Ana has a boat.")
    embed(ada.pk)
    with CaptureQueriesContext(connection) as captured:
        embedding.restart(fresh(ada))
    [plan] = [each for each in plans(captured) if "memory_memory" in each]
    assert "(agent_id=? AND number=?)" in plan


def _during_a_call(server: EmbeddingServer, act: Any) -> None:
    """Act in the thread of the test, between the reply of the server and the end of the batch."""
    from refinement import embedding as making

    original = making._vectors

    def vectors(embedder: Any, texts: Any) -> Any:
        made = original(embedder, texts)
        making._vectors = original
        act(list(texts))
        return made

    making._vectors = vectors


@pytest.mark.parametrize("removal", ["redaction", "version", "erasure", "claim", "none", "category"])
def test_vectors_are_removed_in_the_same_transaction(house: House, ada: Agent, removal: str) -> None:
    remember(ada, "Ana fixed the car.", "Bob likes tea.")
    embed(ada.pk)

    def remove(_: object = None) -> None:
        if removal == "redaction":
            redaction.redact(ada, requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number, ME)
        elif removal == "erasure":
            erasure.erase(ada, requests.ask_erasure(fresh(ada), PERSON, reason="x").number, ME)
        elif removal == "claim":
            key = house.ada.keys.get()
            claims.exchange(key, ME)
        elif removal == "none":
            lifecycle.change(fresh(ada), ME, embedder="none")
        elif removal == "category":
            recordings.off(ada, "behavioral")
        else:
            operations.revise(fresh(ada), 1, ME, content="Ana sold it.")
            embedding.remove(fresh(ada), [1])  # as a redaction of the former version does

    remove()
    kept = {"redaction": {2: EMBEDDER}, "version": {2: EMBEDDER}}
    assert vectors(ada) == kept.get(removal, {})
    assert problems(ada) == []


@pytest.mark.parametrize("removal", ["redaction", "none", "category"])
def test_a_removal_during_a_call_leaves_no_vector(ada: Agent, server: EmbeddingServer, removal: str) -> None:
    remember(ada, "Ana fixed the car.")

    def remove(_: object) -> None:
        if removal == "redaction":
            redaction.redact(ada, requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number, ME)
        elif removal == "none":
            lifecycle.change(fresh(ada), ME, embedder="none")
        else:
            recordings.off(ada, "behavioral")

    _during_a_call(server, remove)
    embed(ada.pk)
    assert vectors(ada) == {}


def test_the_old_vectors_serve_until_the_new_ones_are_complete(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.", "Bob likes tea.")
    embed(ada.pk)
    lifecycle.change(fresh(ada), ME, embedder="openai/new")
    assert (fresh(ada).former_embedder, found(ada, "vehicle repair")) == (EMBEDDER, [1])
    assert (state(ada).embedder, state(ada).queries_go_to) == ("openai/new", EMBEDDER)
    assert server.paths[-1] == "/api/embed"
    assert embed(ada.pk) == "embedded"
    assert (fresh(ada).former_embedder, vectors(ada)) == ("", {1: "openai/new", 2: "openai/new"})
    assert found(ada, "vehicle repair") == [1]
    assert server.paths[-1] == "/v1/embeddings"
    assert state(ada).queries_go_to == "openai/new"
    assert last_entry(ada).detail == {"changed": {"former_embedder": ""}}
    assert problems(ada) == []


def test_a_claim_keeps_the_embedder_but_not_the_former_one(house: House, ada: Agent) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    lifecycle.change(fresh(ada), ME, embedder="openai/new")
    claims.exchange(house.ada.keys.get(), ME, keep=["embedder"])
    assert (fresh(ada).embedder, fresh(ada).former_embedder, vectors(ada)) == ("openai/new", "", {})


def test_a_return_to_the_former_embedder_needs_no_new_vectors(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    for embedder in ("openai/new", "openai/newer", EMBEDDER):
        lifecycle.change(fresh(ada), ME, embedder=embedder)
    assert (fresh(ada).former_embedder, len(server.texts)) == ("", 1)
    assert embed(ada.pk) == "embedded"
    assert (len(server.texts), vectors(ada)) == (1, {1: EMBEDDER})


def test_the_default_embedder_serves_agents_that_have_set_none(house: House, settings: Any) -> None:
    settings.EMBEDDER = "local/small"
    assert embedding.embedder_of(fresh(house.bob)) == "local/small"
    assert embedding.embedder_of(lifecycle.change(fresh(house.bob), ME, embedder="none")) == ""
    assert embedding.embedder_of(lifecycle.change(fresh(house.bob), ME, embedder="ollama/x")) == "ollama/x"


@pytest.mark.parametrize("embedder", ["nomic", "cohere/x", "local/../x", "local/a/b", "ollama/", "openai/" + "x" * 200])
def test_a_wrong_name_is_refused(embedder: str) -> None:
    with pytest.raises(ModelNotConfigured):
        open_embedder(embedder)


def test_the_operators_list_of_models_counts(settings: Any) -> None:
    settings.MODELS = {"openai/*": 1}
    with pytest.raises(ModelNotConfigured, match="does not allow this embedder"):
        open_embedder("ollama/nomic")


@pytest.mark.parametrize("values", [{"embedder": "openai/evil"}, {"former_embedder": "openai/evil"}])
def test_an_embedder_that_sql_sets_gets_no_text(ada: Agent, server: EmbeddingServer, values: dict[str, str]) -> None:
    remember(ada, "Ana fixed the car.")
    Agent.objects.filter(pk=ada.pk).update(**values)
    with pytest.raises(AuthorityBroken):
        embed(ada.pk)
    with pytest.raises(AuthorityBroken):
        found(ada, "vehicle repair")
    assert server.texts == []
    assert "altered: the settings in the agent's row" in str(problems(ada))


def test_sql_cannot_bring_back_the_former_embedder(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    lifecycle.change(fresh(ada), ME, embedder="openai/new")
    old = Agent.objects.values().get(pk=ada.pk)
    embed(ada.pk)
    Agent.objects.filter(pk=ada.pk).update(**old)
    Embedding.objects.filter(agent=ada).update(embedder=EMBEDDER, version=0)
    before = len(server.texts)
    for attack in (lambda: found(ada, "vehicle"), lambda: retry(ada)):
        with pytest.raises(AuthorityBroken):
            attack()
    assert len(server.texts) == before


def test_rows_of_progress_that_sql_changes_leak_nothing(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.", category="personal")
    Embedding.objects.filter(agent=ada).update(embedder="openai/evil", version=0, number=0, queued_at=None)
    Memory.objects.filter(agent=ada).update(version=10**9)
    embed(ada.pk)
    assert server.texts == []
    assert Embedding.objects.get(agent=ada).embedder == EMBEDDER
    assert authority.is_signed(fresh(ada))
