"""The workers that make vectors: no tenant and no embedder can occupy them, and a former embedder gets nothing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import time_machine

from config import queue
from config.queue import EMBED_MEMORIES, Schedule
from memory.agents import lifecycle
from memory.consent import claims, erasure, redaction, requests
from memory.errors import AuthorityBroken
from memory.models import Agent, Embedding, Tenant
from memory.search import embedding
from refinement import allowance, tasks
from refinement import embedding as making
from refinement.embedding import embed, embed_next
from refinement.providers import Availability
from tests.conftest import House
from tests.embedding.conftest import EMBEDDER
from tests.embedding.server import EmbeddingServer
from tests.embedding.steps import retry, state, vectors
from tests.queueing import waiting, work
from tests.rules import recordings
from tests.steps import ME, PERSON, fresh, remember
from tests.tampering import sql

pytestmark = pytest.mark.database

CHANGES: dict[str, Callable[[House], object]] = {
    "claim": lambda house: claims.exchange(house.ada.keys.get(), ME),
    "none": lambda house: lifecycle.change(fresh(house.ada), ME, embedder="none"),
    "another": lambda house: lifecycle.change(fresh(house.ada), ME, embedder="openai/new"),
    "off": lambda house: lifecycle.change(fresh(house.ada), ME, memory_enabled=False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("moment", ["after a batch", "before a call"])
def test_a_former_embedder_gets_no_text(
    house: House, ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 1)
    remember(ada, "Ana fixed the car.", "Bob likes tea.")
    where, name = (embedding, "store") if moment == "after a batch" else (embedding, "next_batch")
    original = getattr(where, name)

    def act(*arguments: Any) -> Any:
        made = original(*arguments)
        monkeypatch.setattr(where, name, original)
        CHANGES[change](house)
        return made

    monkeypatch.setattr(where, name, act)
    assert embed(ada.pk) == "changed"
    assert server.texts == (["Ana fixed the car."] if moment == "after a batch" else [])


@pytest.mark.parametrize("is_query", [True, False])
def test_a_claim_while_the_row_of_the_provider_is_locked_is_seen(
    house: House, ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, is_query: bool
) -> None:
    remember(ada, "Ana fixed the car.")
    agent, original, calls = fresh(ada), Availability.rows, []

    def rows(availability: Availability) -> Any:
        calls.append(availability)
        if len(calls) == 2:  # just before the call; the first time, it is only asked whether the embedder is closed
            CHANGES["claim"](house)
        return original(availability)

    monkeypatch.setattr(Availability, "rows", rows)
    made = making.query_vector(agent, EMBEDDER, "vehicle repair") if is_query else embed(ada.pk)
    assert (made, len(calls) >= 2) == (None if is_query else "changed", True)
    assert server.texts == []


def test_a_former_embedder_gets_no_query(house: House, ada: Agent, server: EmbeddingServer) -> None:
    remember(ada, "Ana fixed the car.")
    embed(ada.pk)
    former = fresh(ada)
    lifecycle.change(fresh(ada), ME, embedder="none")
    assert making.query_vector(former, EMBEDDER, "vehicle repair") is None
    assert "vehicle repair" not in server.texts


def queued() -> int:
    return sum(name == EMBED_MEMORIES for name, _ in waiting())


def later(**duration: float) -> time_machine.travel:
    return time_machine.travel(datetime.now(UTC) + timedelta(**duration), tick=False)


def test_a_waiting_task_is_queued_once(ada: Agent) -> None:
    for _ in range(3):
        remember(ada, "a")
        tasks.close_stale()
    assert queued() == 1
    with later(minutes=11):
        tasks.close_stale()
    assert queued() == 2, "the first one may be lost"
    work()
    tasks.close_stale()
    assert queued() == 0
    remember(ada, "d")
    assert queued() == 1


def test_the_sweep_finds_agents_whose_embedder_is_the_servers(house: House, settings: Any) -> None:
    settings.EMBEDDER = "local/some"
    for _ in range(2):
        tasks.close_stale()
        late = sorted(numbers for name, numbers in waiting() if name == EMBED_MEMORIES)
        assert late == sorted([(house.ada.pk,), (house.bob.pk,)])


def second(ada: Agent, embedder: str = EMBEDDER) -> Agent:
    agent, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME)
    return lifecycle.change(agent, ME, embedder=embedder)


def test_changes_of_the_embedder_or_the_rules_queue_one_task_and_bring_no_second_worker(
    ada: Agent, server: EmbeddingServer
) -> None:
    remember(ada, "Ana fixed the car.")
    row = embedding.take(fresh(ada))
    assert row is not None
    for number in range(5):
        lifecycle.change(fresh(ada), ME, embedder=f"ollama/new{number}")
        recordings.settings(ada, search__max_results=5 + number)
    assert (queued(), embed_next(ada.pk), embed(ada.pk)) == (1, "nothing", "taken")
    assert not embedding.keep(row)
    embedding.leave(row)
    work()
    assert vectors(ada) == {1: "ollama/new4"}


def test_failures_of_many_agents_put_one_task_in_the_schedule(ada: Agent, server: EmbeddingServer) -> None:
    server.hangs_up = True
    for agent in (ada, second(ada)):
        remember(agent, "Ana fixed the car.")
        assert embed(agent.pk) == "failed"
    assert Schedule.objects.filter(func=EMBED_MEMORIES).count() == 1


def test_a_tenant_has_one_task_for_all_its_agents(house: House, ada: Agent) -> None:
    eve = second(ada)
    lifecycle.change(fresh(house.bob), ME, embedder=EMBEDDER)
    for agent in (ada, eve, house.bob):
        remember(agent, "Ana fixed the car.")
    assert [numbers for name, numbers in waiting() if name == EMBED_MEMORIES] == [(ada.pk,), (house.bob.pk,)]
    tasks.close_stale()
    assert queued() == 2
    work()
    assert [len(vectors(agent)) for agent in (ada, eve, house.bob)] == [1, 1, 1]
    assert (queued(), list(embedding.late())) == (0, [])


@pytest.mark.parametrize("fault", ["fails", "is not configured", "sql"])
def test_an_agent_that_cannot_be_embedded_does_not_stop_others_of_its_tenant(
    ada: Agent, server: EmbeddingServer, settings: Any, fault: str
) -> None:
    eve = second(ada, "openai/small")
    remember(ada, "Ana fixed the car.")
    remember(eve, "Bob likes tea.")
    if fault == "fails":
        settings.OLLAMA_BASE_URL = "http://127.0.0.1:1"
    elif fault == "is not configured":
        settings.OLLAMA_BASE_URL = "none"
    else:
        Agent.objects.filter(pk=ada.pk).update(former_embedder="ollama/evil")
    Embedding.objects.filter(agent=ada).update(taken_until=fresh(ada).created_at)  # so it is the first
    work()
    assert (vectors(ada), vectors(eve)) == ({}, {1: "openai/small"})
    assert queued() == 0


def test_while_a_worker_makes_vectors_for_a_tenant_no_other_does(ada: Agent, server: EmbeddingServer) -> None:
    eve = second(ada)
    remember(eve, "Bob likes tea.")
    assert embedding.take(fresh(ada)) is not None
    assert embed_next(eve.pk) == "nothing"
    with later(minutes=2):
        assert embed_next(eve.pk) == "embedded"


def test_an_embedder_that_refuses_slowly_occupies_no_worker(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "TASK_SECONDS", 0.25)
    remember(ada, *(f"text {number}" for number in range(40)))
    server.status, server.seconds = 400, 0.1
    assert embed(ada.pk) == "failed"
    assert "answered 400" in state(ada).problem
    assert len(server.paths) <= 3
    for _ in range(embedding.MOST_FAILURES):
        retry(ada)
    calls = len(server.texts)
    retry(ada)
    assert len(server.texts) - calls <= 3, "the batches have one text now"
    assert (vectors(ada), state(ada).waiting) == ({}, 40)
    server.recover()
    monkeypatch.setattr(making, "TASK_SECONDS", 20.0)
    assert retry(ada) == "embedded"
    assert len(vectors(ada)) == 40


@pytest.mark.parametrize("status", [302, 400, 402, 405, 409])
def test_a_server_that_refuses_everything_for_a_while_loses_no_vector(
    ada: Agent, server: EmbeddingServer, status: int
) -> None:
    remember(ada, "one", "two", "three")
    server.status = status
    assert embed(ada.pk) == "failed"
    assert (state(ada).waiting, f"answered {status}" in state(ada).problem) == (3, True)
    server.recover()
    assert retry(ada) == "embedded"
    assert len(vectors(ada)) == 3


def test_slow_embedders_get_smaller_batches(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "BATCH_SECONDS", 0.3)
    monkeypatch.setattr(making.EmbedderAvailability, "longest", timedelta())
    remember(ada, *(f"text {number}" for number in range(8)))
    monkeypatch.setattr(embedding, "BATCH", 8)
    server.tells = lambda texts: setattr(server, "seconds", 0.6 if len(texts) > 2 else 0.0)
    codes = []
    while not codes or codes[-1] != "embedded":
        codes.append(retry(ada))
        assert len(codes) < 10
    assert len(vectors(ada)) == 8


@pytest.mark.parametrize("change", ["redaction", "erasure", "category", "off"])
def test_a_refused_batch_is_read_again_before_it_is_sent_again(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    remember(ada, "one secret", "another secret")
    original = making._vectors

    def refused(*arguments: Any) -> Any:
        monkeypatch.setattr(making, "_vectors", original)
        server.status = 400
        try:
            return original(*arguments)
        finally:
            server.status = 0
            _hide(ada, change)

    monkeypatch.setattr(making, "_vectors", refused)
    embed(ada.pk)
    assert server.texts == ["one secret", "another secret"]
    assert vectors(ada) == {}


def _hide(ada: Agent, change: str) -> None:
    if change == "redaction":
        redaction.redact(fresh(ada), requests.ask_redaction(fresh(ada), [1, 2], PERSON, reason="x").number, ME)
    elif change == "erasure":
        erasure.erase(fresh(ada), requests.ask_erasure(fresh(ada), PERSON, reason="x").number, ME)
    elif change == "category":
        recordings.off(ada, "behavioral")
    else:
        lifecycle.change(fresh(ada), ME, memory_enabled=False)


def test_sql_that_foresees_a_redaction_sends_no_redacted_text(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "one secret", "another secret")
    number, keep, original = fresh(ada).audit_seq + 2, embedding.keep, making._vectors

    def put_back(row: Embedding) -> bool:
        sql("UPDATE memory_agent SET redacted_seq = 0")
        return keep(row)

    def then_redacted(*arguments: Any) -> Any:
        _hide(ada, "redaction")
        return original(*arguments)

    monkeypatch.setattr(queue, "is_ending", lambda: sql(f"UPDATE memory_agent SET redacted_seq = {number}"))
    monkeypatch.setattr(embedding, "keep", put_back)
    monkeypatch.setattr(making, "_vectors", then_redacted)
    with pytest.raises(AuthorityBroken):
        embed(ada.pk)
    assert server.texts == []


@pytest.mark.parametrize("change", ["redaction", "category"])
def test_no_call_repeats_texts_that_were_hidden_meanwhile(ada: Agent, server: EmbeddingServer, change: str) -> None:
    remember(ada, "one secret", "another secret")
    agent, row = fresh(ada), embedding.take(fresh(ada))
    assert row is not None
    availability = making.EmbedderAvailability(
        EMBEDDER, agent, partial(making._allowed, seen=making._what_hides(agent))
    )
    batch = embedding.next_batch(agent, row, 1)
    assert batch is not None
    _hide(ada, change)
    with pytest.raises(making._Changed):
        making._make(agent, batch, availability)
    assert server.texts == []


def test_a_call_counts_although_its_vectors_are_not_stored(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "one")
    original = making._vectors

    def late(*arguments: Any) -> Any:
        found = original(*arguments)
        lifecycle.change(fresh(ada), ME, embedder="")
        return found

    monkeypatch.setattr(making, "_vectors", late)
    embed(ada.pk)
    assert vectors(ada) == {}
    assert allowance.spent(ada.tenant_id) > 0


def test_the_tokens_of_queries_count_and_a_used_allowance_ends_them(
    ada: Agent, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key could send queries of millions of tokens a minute."""
    monkeypatch.setattr(allowance, "FEW_TOKENS", 1)
    Tenant.objects.filter(pk=ada.tenant_id).update(month_tokens=1)
    assert making.query_vector(fresh(ada), EMBEDDER, "vehicle repair") is not None
    assert allowance.spent(ada.tenant_id) > 1
    sent = len(server.texts)
    assert making.query_vector(fresh(ada), EMBEDDER, "vehicle repair") is None
    assert len(server.texts) == sent


def test_small_amounts_of_tokens_count_on_average(ada: Agent) -> None:
    for _ in range(400):
        allowance.add_sometimes(ada.tenant_id, EMBEDDER, allowance.FEW_TOKENS // 2)
    assert 120 < allowance.spent(ada.tenant_id) / allowance.FEW_TOKENS < 280
