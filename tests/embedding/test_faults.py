"""An embedder that is down, slow or wrong: search finds words, the state says why, and vectors are made later."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from pydantic import ValidationError

from config import queue
from memory.agents import lifecycle
from memory.models import Agent, Tenant
from memory.search import embedding, reading
from memory.search.selection import Filters
from refinement import embedding as making
from refinement.embedding import embed
from refinement.llm import embedders
from refinement.models import Provider
from tests.conftest import House
from tests.embedding.conftest import EMBEDDER
from tests.embedding.server import EmbeddingServer
from tests.embedding.steps import found, retry, state, vectors
from tests.steps import ME, fresh, problems, remember

pytestmark = pytest.mark.database

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "down": ({"hangs_up": True}, "could not be reached"),
    "slow": ({"seconds": 0.8}, "did not answer in time"),
    "refuses": ({"status": 401}, "the API key is missing or wrong"),
    "overloaded": ({"status": 503}, "answered 503"),
    "another count": ({"answer": lambda found: found[1:]}, "has 1 vector for 2 texts"),
    "other sizes": ({"answer": lambda found: [found[0], found[1][1:]]}, "wrong numbers of dimensions"),
    "NaN": ({"answer": lambda found: [[float("nan"), *found[0][1:]], *found[1:]]}, "does not follow its protocol"),
    "too large": ({"answer": lambda found: [[1e39, *each[1:]] for each in found]}, "not numbers"),
    "zeros": ({"answer": lambda found: [[0.0] * len(each) for each in found]}, "only zeros"),
    "a small length": ({"answer": lambda found: [[1e-46] * len(each) for each in found]}, "only zeros"),
    "many vectors": ({"answer": lambda _: [[]] * 1_000}, "does not follow its protocol"),
    "too much": ({"answer": lambda _: [[0.1234567890123456] * 30_000]}, "sent more than"),
    "no vectors": ({"answer": lambda found: [[] for _ in found]}, "wrong numbers of dimensions"),
    "no numbers": ({"answer": lambda found: [["1"] for _ in found]}, "does not follow its protocol"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_search_by_words_goes_on_and_the_vectors_come_later(
    ada: Agent, server: EmbeddingServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, problem = FAULTS[name]
    remember(ada, "Ana fixed the car.", "Bob likes tea.")
    vars(server).update(fault)
    with monkeypatch.context() as short:
        if name in ("down", "slow", "overloaded"):
            short.setattr(making, "QUERY_SECONDS", 0.2)
            short.setattr(making, "BATCH_SECONDS", 0.6)
        assert embed(ada.pk) == "failed"
        assert vectors(ada) == {}
        assert problem in state(ada).problem
        assert "car" not in state(ada).problem
        assert state(ada).waiting == 2
        assert found(ada, "car") == [1]
        assert found(ada, "vehicle repair") == []
        assert not reading.search(fresh(ada), "car", filters=Filters()).by_meaning
    server.recover()
    Provider.objects.update(shut_until=None)
    assert retry(ada) == "embedded"
    assert (state(ada).problem, list(vectors(ada))) == ("", [1, 2])
    assert found(ada, "vehicle repair") == [1]
    assert reading.search(fresh(ada), "car", filters=Filters()).by_meaning
    assert problems(ada) == []


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_vectors_whose_squares_are_no_float32_are_found(ada: Agent, server: EmbeddingServer, value: float) -> None:
    server.answer = lambda found: [[value * number for number in each] for each in found]
    remember(ada, "Ana fixed the car.", "Bob likes tea.")
    assert embed(ada.pk) == "embedded"
    assert found(ada, "vehicle repair") == [1]


@pytest.mark.parametrize("reply", [{"embeddings": [["x"] * 10] * 10}, {"embeddings": [None] * 10}])
def test_a_wrong_reply_is_read_to_its_first_wrong_item(reply: Any) -> None:
    with pytest.raises(ValidationError) as error:
        embedders._OllamaAnswer.model_validate(reply)
    assert error.value.error_count() == 1


def test_other_dimensions_are_refused_and_the_vectors_stay(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    server.dimensions = 32
    remember(ada, "Bob likes tea.")
    assert embed(ada.pk) == "failed"
    assert "other dimensions (32 and 256)" in state(ada).problem
    assert found(ada, "car") == [1], "the query has other dimensions too"
    server.recover()
    assert found(ada, "vehicle repair") == [1]
    assert retry(ada) == "embedded"
    assert list(vectors(ada)) == [1, 2]


def test_a_text_that_the_embedder_refuses_does_not_stop_the_others(ada: Agent, server: EmbeddingServer) -> None:
    long = "x " * 2_000
    remember(ada, "Ana fixed the car.", long, "bad", "Bob likes tea.")

    def refuse(texts: list[str]) -> None:
        server.status = 400 if any(len(text) > 1_000 or text == "bad" for text in texts) else 0

    server.tells = refuse
    assert embed(ada.pk) == "embedded"
    assert list(vectors(ada)) == [1, 2, 4]
    assert (state(ada).waiting, state(ada).problem) == (0, "")


def test_a_closed_embedder_costs_a_query_nothing_and_is_tried_again_soon(
    ada: Agent, server: EmbeddingServer, house: House
) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    server.hangs_up = True
    for _ in range(3):
        assert found(ada, "car") == [1]
    calls = len(server.texts)
    assert found(ada, "vehicle repair") == []
    assert len(server.texts) == calls
    assert state(ada).problem == "ollama/nomic did not answer the last query."
    server.recover()
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=16), tick=True):
        assert found(ada, "vehicle repair") == [1]


def test_failures_of_one_tenant_do_not_close_the_embedder_for_others(
    ada: Agent, house: House, server: EmbeddingServer
) -> None:
    lifecycle.change(fresh(house.bob), ME, embedder=EMBEDDER)
    for agent in (ada, house.bob):
        remember(agent, "Ana fixed the car.")
        assert embed(agent.pk) == "embedded"
    server.status = 500
    for _ in range(3):
        assert found(house.bob, "vehicle") == []
    server.recover()
    assert (found(house.bob, "vehicle repair"), found(ada, "vehicle repair")) == ([], [1])


def test_a_command_with_another_address_does_not_close_the_embedder(
    ada: Agent, server: EmbeddingServer, settings: Any
) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    address, settings.OLLAMA_BASE_URL = settings.OLLAMA_BASE_URL, "http://127.0.0.1:1"
    for _ in range(3):
        assert found(ada, "vehicle repair") == []
    settings.OLLAMA_BASE_URL = address
    assert found(ada, "vehicle repair") == [1]


def test_a_failure_is_tried_again_within_seconds(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "BATCH_SECONDS", 0.2)
    remember(ada, "Ana fixed the car.")
    server.hangs_up = True
    for _ in range(12):
        retry(ada)
    later = queue.Schedule.objects.filter(func=queue.EMBED_MEMORIES).latest("next_run").next_run
    assert later - datetime.now(UTC) <= embedding.LONGEST_PAUSE


def test_a_tenant_without_tokens_gets_no_vectors(ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.")
    Tenant.objects.filter(pk=ada.tenant_id).update(month_tokens=0)
    assert embed(ada.pk) == "failed"
    assert state(ada).problem == "The tenant has used its model tokens of this month."
    assert server.texts == []
    assert not queue.is_put_later(queue.EMBED_MEMORIES), "the sweep tries again"
    assert found(fresh(ada), "car") == [1]
