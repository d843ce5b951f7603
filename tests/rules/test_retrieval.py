"""Retrieval: what is seen from a project, how it is ranked, what each setting takes away, and that use is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from memory import errors
from memory.agents import rule_changes
from memory.models import Agent, Recall, Source
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.projects import seen_from
from memory.recording import retrieval, topics, usage
from memory.recording.retrieval import retrieve
from memory.recording.topics import Stage
from memory.search import reading
from memory.search.selection import Filters
from memory.writing import operations
from tests.rules.talking import settings as settle
from tests.rules.talking import talk
from tests.steps import ME, PERSON, fresh, remember, tell
from tests.unit.test_queries import asked

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def found(agent: Agent, query: str = "tea", **asked: Any) -> list[int]:
    return [read.memory.number for read in retrieve(fresh(agent), query, **asked).reads]


# --- what is seen from a project


@pytest.fixture
def places(ada: Agent) -> dict[str, int]:
    """A memory of tea in each place: name → number."""
    where = {
        "common": ("technical", ""),
        "common, named a": ("technical", "a"),
        "common, named b": ("behavioral", "b"),
        "private": ("personal", ""),
        "private, of a": ("credentials", "a"),
        "private, of b": ("keys", "b"),
        "a": ("contextual", "a"),
        "session of a": ("session", "a"),
        "b": ("contextual", "b"),
        "topic of b": ("topic", "b"),
        "default": ("contextual", DEFAULT_PROJECT),
        "of none": ("git_history", ""),
    }
    return {name: remember(ada, "tea", category=c, project=p)[0] for name, (c, p) in where.items()}


COMMON = {"common", "common, named a", "common, named b"}
OF_A = {"private, of a", "a", "session of a"}
OF_B = {"private, of b", "b", "topic of b"}
OF_NONE = {"default", "of none"}


def test_what_is_seen(ada: Agent, places: dict[str, int]) -> None:
    [gone] = remember(ada, "tea", category="technical")
    operations.discard(fresh(ada), [gone], ME)
    rows: list[tuple[dict[str, Any], str, set[str]]] = [
        ({}, "a", COMMON | {"private"} | OF_A),
        ({}, "c", COMMON | {"private"}),
        ({}, "", COMMON | {"private"} | OF_NONE),
        ({"project_support__enabled": False}, "a", COMMON | {"private"} | OF_A | OF_B | OF_NONE),
        ({"project_support__common_memory_enabled": False}, "a", {"private"} | OF_A),
        ({"project_support__private_memory_enabled": False}, "a", COMMON | OF_A - {"private, of a"}),
        (
            {"categories__technical__share_across_projects": False},
            "b",
            COMMON - {"common, named a"} | {"private"} | OF_B,
        ),
        ({"categories__keys__share_across_projects": True}, "a", COMMON | {"private", "private, of b"} | OF_A),
        ({"categories__contextual__share_across_projects": True}, "a", COMMON | {"private"} | OF_A),
        ({"categories__personal__enabled": False}, "a", COMMON | OF_A),
        ({"search__enable_session_search": False}, "a", COMMON | {"private"} | OF_A - {"session of a"}),
        ({"search__enable_topic_search": False}, "b", COMMON | {"private"} | OF_B - {"topic of b"}),
    ]
    names = {number: name for name, number in places.items()}
    for settings, project, seen in rows:
        settle(ada, **settings)
        assert {names[number] for number in found(ada, project=project)} == seen, settings


@given(st.sampled_from(["a", "b", "c", "", DEFAULT_PROJECT]), st.sampled_from(["a", "b", "c", "d"]))
def test_nothing_of_another_project_is_ever_seen(own: str, other: str) -> None:
    seen = seen_from({}, own)
    assert seen is not None
    for category in ("session", "topic", "user_interaction", "contextual", "git_history", "credentials", "personal"):
        assert (other in seen[category]) == (other == own)


def test_the_history_of_interactions_is_left_out_where_it_is_switched_off(ada: Agent) -> None:
    [number] = remember(ada, "tea", category="user_interaction", project="a")
    assert found(ada, project="a") == [number]
    settle(ada, search__include_interaction_history=False)
    assert found(ada, project="a") == []


def test_notices_of_the_system_are_left_out_and_take_nobodys_place(ada: Agent) -> None:
    for _ in range(12):
        tell(ada, "tea")
    [number] = remember(ada, "tea, and much else to say of an afternoon by the harbour")
    assert found(ada, limit=1) == [number]
    assert reading.search(fresh(ada), "tea", filters=Filters(), limit=1)[0].memory.source == Source.SYSTEM


def test_another_agents_memory_is_not_found(ada: Agent, bob: Agent) -> None:
    remember(bob, "tea")
    assert found(ada) == []


# --- settings of the search


def test_max_results_is_the_default_and_the_most(ada: Agent) -> None:
    remember(ada, *["tea"] * 25)
    assert len(found(ada)) == 20
    assert len(found(ada, limit=25)) == 20
    assert len(found(ada, limit=3)) == 3
    settle(ada, search__max_results=2)
    assert found(ada, limit=3) == [1, 2]


def test_what_cannot_be_asked_is_refused(ada: Agent) -> None:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("limit", {"limit": 0}),
        ("max_tokens", {"max_tokens": -1}),
        ("project", {"project": "../b"}),
    ]
    for field, values in rows:
        with pytest.raises(errors.Invalid, match=rf"^{field}"):
            retrieve(ada, "tea", **values)


def test_without_full_text_tags_alone_are_looked_for(ada: Agent) -> None:
    remember(ada, "tea")
    [tagged] = remember(ada, "milk", tags=["tea"])
    settle(ada, search__enable_full_text=False)
    assert found(ada, "tea") == []
    assert found(ada, "nothing of it", tags=["tea"]) == [tagged]
    assert found(ada, "tag:tea") == [tagged]


def test_without_tag_search_tags_are_words(ada: Agent) -> None:
    remember(ada, "tea")
    [tagged] = remember(ada, "milk", tags=["tea"])
    assert found(ada, "tag:tea") == [tagged]
    settle(ada, search__enable_tag_search=False)
    assert set(found(ada, "tag:tea")) == {1, tagged}
    with pytest.raises(errors.Invalid, match=r"^tags"):
        retrieve(fresh(ada), "tea", tags=["tea"])
    settle(ada, search__enable_full_text=False, search__enable_tag_search=False)
    assert found(ada, "tea tag:tea") == []


def test_with_memory_off_nothing_is_read_or_noted(ada: Agent) -> None:
    remember(ada, "tea")
    rule_changes.change(ada, PERSON, enabled=False)
    with pytest.raises(errors.MemoryDisabled):
        retrieve(fresh(ada), "tea")
    assert not Recall.objects.exists()


# --- ranking


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def test_recency_is_a_mild_factor(ada: Agent) -> None:
    for days, factor in ((0, 1.1), (90, 1.05), (180, 1.025), (100_000, 1.0), (-30, 1.1)):
        assert retrieval.recency(days_ago(days), now=NOW) == pytest.approx(factor)
    remember(ada, "green tea", "black coffee", origin=days_ago(90))
    [plain] = reading.search(fresh(ada), "tea", filters=Filters())
    [read] = retrieve(fresh(ada), "tea", now=NOW).reads
    assert read.score == pytest.approx(plain.score * 1.05)


def test_of_equals_the_newer_comes_first_and_then_the_lower_number(ada: Agent) -> None:
    for days in (400, 200, 10, 10):
        remember(ada, "green tea", origin=days_ago(days))
    assert found(ada, "green tea", now=NOW) == [3, 4, 2, 1]


def test_recency_does_not_outweigh_what_is_asked(ada: Agent) -> None:
    remember(ada, "green tea from the harbour", origin=days_ago(3_000))
    remember(ada, "tea", "tea with milk", origin=days_ago(0))
    assert found(ada, "green tea harbour", now=NOW)[0] == 1


def test_the_newest_of_many_equals_is_found(ada: Agent) -> None:
    remember(ada, *["tea"] * 300, origin=days_ago(500))
    [newest] = remember(ada, "tea", origin=days_ago(0))
    assert found(ada, limit=1, now=NOW) == [newest]


def test_what_was_recorded_at_a_time_that_is_named_comes_first(ada: Agent) -> None:
    may, june, now = datetime(2023, 5, 9, tzinfo=UTC), datetime(2023, 6, 9, tzinfo=UTC), days_ago(0)
    for origin in (may, june, now):
        remember(ada, "Ann bought a teapot", origin=origin)
    assert found(ada, "What teapot did Ann buy?", now=NOW)[0] == 3
    assert found(ada, "What teapot did Ann buy in May 2023?", now=NOW)[0] == 1
    assert found(ada, "What teapot did Ann buy on June 9, 2023?", now=NOW)[0] == 2
    assert found(ada, "What teapot did Ann buy today?", now=NOW)[0] == 3


# --- the block


def test_the_block_says_what_was_found(ada: Agent) -> None:
    remember(ada, "tea\nat four", origin=days_ago(1))
    remember(ada, "tea and milk and much else", kind="journal", origin=days_ago(0))
    told = retrieve(fresh(ada), "tea", now=NOW)
    assert told.block == ("# What you remember of this\n- tea\n  at four\n- 2026-06-01: tea and milk and much else\n")
    assert told.tokens == sum(read.memory.tokens for read in told.reads)
    told = retrieve(fresh(ada), "coffee")
    assert (told.block, told.reads, told.times) == ("", (), {})


def test_the_block_stays_within_max_tokens(ada: Agent) -> None:
    remember(ada, "tea " * 40, "tea", "tea now")
    whole = retrieve(fresh(ada), "tea")
    told = retrieve(fresh(ada), "tea", max_tokens=10)
    assert 0 < told.tokens <= 10 < whole.tokens
    assert (len(told.reads), told.left_out, told.left_out_tokens) == (2, 1, whole.tokens - told.tokens)
    assert told.block.endswith(f"\n\n(1 memories of {told.left_out_tokens:,} tokens are left out here.)\n")
    assert set(told.times) == {2, 3}


# --- use


def test_what_is_handed_out_is_counted(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea", "green tea", "milk")
    remember(bob, "tea")
    reading.search(fresh(ada), "tea", filters=Filters())  # which is no retrieval
    retrieve(fresh(ada), "tea", now=NOW)
    later = NOW + timedelta(days=2)
    assert retrieve(fresh(ada), "green", now=later).times == {2: 2}
    rows = {row.number: row for row in Recall.objects.filter(agent=ada)}
    assert {number: (row.times, row.first_at, row.last_at) for number, row in rows.items()} == {
        1: (1, NOW, NOW),
        2: (2, NOW, later),
    }
    assert not Recall.objects.filter(agent=bob).exists()


@pytest.mark.database
def test_where_use_cannot_be_noted_what_was_found_is_given_all_the_same(ada: Agent) -> None:
    remember(ada, "tea ZEBRA")
    locked = mock.patch.object(usage, "with_timeout", side_effect=OperationalError("database is locked"))
    with locked, capture_logs() as logged:
        told = retrieve(fresh(ada), "tea ZEBRA")
    assert ([read.memory.number for read in told.reads], told.times) == ([1], {})
    [line] = [each for each in logged if each["event"] == "use of memories not noted"]
    assert (line["agent"], line["error"]) == (ada.pk, "OperationalError")
    assert "ZEBRA" not in repr(logged)


@pytest.mark.parametrize("count", [2, 200])
def test_retrieval_takes_as_many_queries_for_many_as_for_few(ada: Agent, count: int) -> None:
    settle(ada, search__max_results=1_000)
    remember(ada, *["tea"] * count)
    agent = fresh(ada)
    retrieve(agent, "tea")  # the index is there then
    statements = asked(lambda: retrieve(agent, "tea"))
    told = [sql for sql in statements if not sql.startswith(("BEGIN", "SELECT set_config"))]
    use = ["INSERT memory_recall", "SELECT memory_recall", "UPDATE memory_recall"]
    assert told == ["SELECT memory_memory", "SELECT memory_memory", *use]  # newer, rows
    assert len(usage.times(agent)) == count


@pytest.mark.database
def test_a_tally_is_right_beyond_what_one_statement_takes(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "max_query_params", 12)
    for times in (1, 2):
        assert usage.note(ada, range(9, 0, -1), NOW) == dict.fromkeys(range(1, 10), times)


@pytest.fixture
def threads(transactional_db: None) -> Iterator[None]:
    yield
    connections.close_all()


@pytest.mark.database
def test_uses_at_the_same_time_are_all_counted(threads: None, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "PATIENCE", 30)
    remember(ada, *["tea"] * 8)
    start, problems = threading.Barrier(6), []

    def use(backwards: bool) -> None:
        try:
            start.wait()
            for _ in range(5):
                numbers = list(range(1, 9))
                usage.note(ada, numbers[::-1] if backwards else numbers, NOW)
        except Exception as problem:  # noqa: BLE001  told below
            problems.append(problem)
        finally:
            connection.close()

    running = [threading.Thread(target=use, args=(place % 2 == 0,)) for place in range(6)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert problems == []
    assert usage.times(ada) == dict.fromkeys(range(1, 9), 30)


@pytest.mark.sqlite
def test_who_finds_the_database_held_does_not_wait_long(
    threads: None, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import holds it for minutes; SQLite's own patience is half a minute."""
    monkeypatch.setattr(usage, "PATIENCE", 0)
    remember(ada, "tea")
    agent = fresh(ada)
    retrieve(agent, "tea")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        from django.db import transaction

        with transaction.atomic():
            held.set()
            done.wait(20)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    try:
        told = retrieve(agent, "tea")
    finally:
        done.set()
        holder.join()
    assert ([read.memory.number for read in told.reads], told.times) == ([1], {})
    assert retrieve(agent, "tea").times == {1: 2}
    assert connection.patience is None  # type: ignore[attr-defined]  # config.sqlite3's


# --- of a structured memory, what it tells


def test_the_words_of_a_template_find_nothing(ada: Agent) -> None:
    topics.evolve(ada, "Ferries", ME, Stage(insights=("They leave early",), questions=("When?",)))
    remember(ada, "## Context\nA storm\n\n## Outcome\nWe stayed", category="technical")
    for query in ("evolution history", "scope", "recorded", "important concepts", "outcome"):
        assert found(ada, query) == []
    assert (found(ada, "ferries"), found(ada, "early"), found(ada, "storm")) == ([1], [1], [2])


def test_what_somebody_said_is_found_whatever_it_is_like(ada: Agent) -> None:
    talk(ada, "## Analysis\n- Key Learnings: none\n- Not recorded: the tide", "Thanks")
    assert (found(ada, "learnings"), found(ada, "tide"), found(ada, "recorded")) == ([1], [1], [1])


def test_what_nobody_told_is_not_handed_out_and_weighs_nothing(ada: Agent) -> None:
    topics.evolve(ada, "Ferries", ME, Stage(insights=("They leave early",)))
    done = retrieve(fresh(ada), "ferries")
    assert "They leave early" in done.block
    assert "Not recorded" not in done.block
    assert "Not recorded" not in done.reads[0].opened.content  # only a file says so
    assert len(retrieve(fresh(ada), "ferries", max_tokens=done.tokens).reads) == 1
    assert retrieve(fresh(ada), "ferries", max_tokens=done.tokens - 1).left_out == 1
