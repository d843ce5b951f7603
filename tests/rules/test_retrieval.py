"""Retrieval: what is visible from a project, ranking, the search settings, the block, and the recall counts."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections, transaction
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from memory import errors
from memory.models import Agent, Recall, Source
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.projects import seen_from
from memory.recording import retrieval, topics, usage
from memory.recording.retrieval import Retrieved, periods, retrieve
from memory.recording.topics import Stage
from memory.search import reading
from memory.search.selection import Filters
from memory.writing import operations
from tests.rules.recordings import settings, talk
from tests.steps import ME, SESSION, fresh, remember, tell
from tests.unit.test_queries import asked

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def numbers(found: Retrieved) -> list[int]:
    return [read.memory.number for read in found.reads]


def found(agent: Agent, query: str = "tea", **options: Any) -> list[int]:
    return numbers(retrieve(fresh(agent), query, **options))


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


@pytest.fixture
def places(ada: Agent) -> dict[int, str]:
    """A memory of tea in each place: number → name."""
    where = {
        "common": ("technical", ""),
        "common, named a": ("technical", "a"),
        "common, named b": ("behavioral", "b"),
        "private": ("personal", ""),
        "private, of a": ("credentials", "a"),
        "private, of b": ("keys", "b"),
        "a": ("contextual", "a"),
        "session of a": ("session", "a"),
        "interaction of a": ("user_interaction", "a"),
        "b": ("contextual", "b"),
        "topic of b": ("topic", "b"),
        "default": ("contextual", DEFAULT_PROJECT),
        "of none": ("git_history", ""),
    }
    return {remember(ada, "tea", category=c, project=p)[0]: name for name, (c, p) in where.items()}


PRIVATE = {"private"}
COMMON = {"common", "common, named a", "common, named b"}
OF_A = {"private, of a", "a", "session of a", "interaction of a"}
OF_B = {"private, of b", "b", "topic of b"}
OF_NONE = {"default", "of none"}
VISIBLE: list[tuple[dict[str, Any], str, set[str]]] = [
    ({}, "a", COMMON | PRIVATE | OF_A),
    ({}, "c", COMMON | PRIVATE),
    ({}, "", COMMON | PRIVATE | OF_NONE),
    ({"project_support__enabled": False}, "a", COMMON | PRIVATE | OF_A | OF_B | OF_NONE),
    ({"project_support__common_memory_enabled": False}, "a", PRIVATE | OF_A),
    ({"project_support__private_memory_enabled": False}, "a", COMMON | OF_A - {"private, of a"}),
    ({"categories__technical__share_across_projects": False}, "b", COMMON - {"common, named a"} | PRIVATE | OF_B),
    ({"categories__keys__share_across_projects": True}, "a", COMMON | PRIVATE | {"private, of b"} | OF_A),
    ({"categories__contextual__share_across_projects": True}, "a", COMMON | PRIVATE | OF_A),
    ({"categories__personal__enabled": False}, "a", COMMON | OF_A),
    ({"search__enable_session_search": False}, "a", COMMON | PRIVATE | OF_A - {"session of a"}),
    ({"search__enable_topic_search": False}, "b", COMMON | PRIVATE | OF_B - {"topic of b"}),
    ({"search__include_interaction_history": False}, "a", COMMON | PRIVATE | OF_A - {"interaction of a"}),
]


def test_the_project_and_the_settings_decide_what_is_visible(ada: Agent, bob: Agent, places: dict[int, str]) -> None:
    remember(bob, "tea")
    operations.discard(fresh(ada), remember(ada, "tea", category="technical"), ME)
    for values, project, visible in VISIBLE:
        settings(ada, **values)
        each = ("", "credentials", "keys")
        seen = {number for category in each for number in found(ada, project=project, category=category)}
        assert {places[number] for number in seen} == visible, values


@given(st.sampled_from(["a", "b", "c", "", DEFAULT_PROJECT]), st.sampled_from(["a", "b", "c", "d"]))
def test_no_memory_of_another_project_is_visible(own: str, other: str) -> None:
    visible = seen_from({}, own)
    assert visible is not None
    for category in ("session", "topic", "user_interaction", "contextual", "git_history", "credentials", "personal"):
        assert (other in visible[category]) == (other == own)


def test_system_notices_are_not_found(ada: Agent) -> None:
    for _ in range(12):
        tell(ada, "tea")
    [number] = remember(ada, "tea, and much else to say of an afternoon by the harbour")
    assert found(ada, limit=1) == [number]
    assert reading.search(fresh(ada), "tea", filters=Filters(), limit=1)[0].memory.source == Source.SYSTEM


def test_max_results_is_the_default_and_the_maximum(ada: Agent) -> None:
    remember(ada, *["tea"] * 25)
    assert [len(found(ada, **limit)) for limit in ({}, {"limit": 25}, {"limit": 3})] == [20, 20, 3]
    settings(ada, search__max_results=2)
    assert found(ada, limit=3) == [1, 2]


def test_full_text_and_tag_search_can_be_switched_off(ada: Agent) -> None:
    remember(ada, "tea")
    [tagged] = remember(ada, "milk", tags=["tea"])
    assert found(ada, "tag:tea") == [tagged]
    settings(ada, search__enable_full_text=False)
    assert (found(ada, "tea"), found(ada, "nothing", tags=["tea"]), found(ada, "tag:tea")) == ([], [tagged], [tagged])
    settings(ada, search__enable_tag_search=False)
    assert set(found(ada, "tag:tea")) == {1, tagged}
    with pytest.raises(errors.Invalid, match=r"^tags"):
        retrieve(fresh(ada), "tea", tags=["tea"])
    settings(ada, search__enable_full_text=False, search__enable_tag_search=False)
    assert found(ada, "tea tag:tea") == []


def test_recency_is_a_mild_factor_of_the_score(ada: Agent) -> None:
    for days, factor in ((0, 1.1), (90, 1.05), (180, 1.025), (100_000, 1.0), (-30, 1.1)):
        assert retrieval.recency(ago(days), now=NOW) == pytest.approx(factor)
    remember(ada, "green tea", "black coffee", origin=ago(90))
    [plain] = reading.search(fresh(ada), "tea", filters=Filters())
    [read] = retrieve(fresh(ada), "tea", now=NOW).reads
    assert read.score == pytest.approx(plain.score * 1.05)


def test_relevance_ranks_before_recency_and_recency_before_the_number(ada: Agent) -> None:
    for days in (400, 200, 10, 10):
        remember(ada, "green tea", origin=ago(days))
    assert found(ada, "green tea", now=NOW) == [3, 4, 2, 1]
    remember(ada, "green tea from the harbour", origin=ago(3_000))
    assert found(ada, "green tea harbour", now=NOW)[0] == 5
    remember(ada, *["coffee"] * 300, origin=ago(500))
    [newest] = remember(ada, "coffee", origin=ago(0))
    assert found(ada, "coffee", limit=1, now=NOW) == [newest]


def test_memories_of_a_named_period_rank_first(ada: Agent) -> None:
    for origin in (datetime(2023, 5, 9, tzinfo=UTC), datetime(2023, 6, 9, tzinfo=UTC), NOW):
        remember(ada, "Ann bought a teapot", origin=origin)
    for period, first in (("", 3), (" in May 2023", 1), (" on June 9, 2023", 2), (" today", 3)):
        assert found(ada, f"What teapot did Ann buy{period}?", now=NOW)[0] == first


def test_the_block_says_what_was_found(ada: Agent) -> None:
    remember(ada, "tea\nat four", origin=ago(1))
    remember(ada, "tea and milk and much else", kind="journal", origin=ago(0))
    result = retrieve(fresh(ada), "tea", now=NOW)
    assert result.block == "# What you remember of this\n- tea\n  at four\n- 2026-06-01: tea and milk and much else\n"
    assert result.tokens == sum(read.memory.tokens for read in result.reads)
    result = retrieve(fresh(ada), "coffee")
    assert (result.block, result.reads, result.times) == ("", (), {})


def test_the_block_stays_within_max_tokens(ada: Agent) -> None:
    remember(ada, "tea " * 40, "tea", "tea now")
    whole = retrieve(fresh(ada), "tea")
    result = retrieve(fresh(ada), "tea", max_tokens=10)
    left_out = whole.tokens - result.tokens
    assert 0 < result.tokens <= 10 < whole.tokens
    assert (len(result.reads), result.left_out, result.left_out_tokens) == (2, 1, left_out)
    assert result.block.endswith(f"\n\n(1 memory of {left_out:,} tokens is left out here.)\n")
    assert set(result.times) == {2, 3}


DETAILS = "Ann met Bo at the harbour café; Ann bought a ferry ticket; the mole was closed; Ann saw two grey seals"


def merge(agent: Agent, text: str, *sources: str) -> list[int]:
    """Store the sources, and merge them into a memory with this text. Return the numbers of the sources."""
    sources_ = remember(agent, *sources)
    operations.consolidate(agent, sources_, text, ME, session=SESSION)
    return sources_


def test_a_source_with_more_of_the_query_comes_after_its_successor(ada: Agent) -> None:
    merge(ada, "Ann drinks tea and has a cat", "Ann drinks green tea with lemon", "Ann has a cat that is named Tom")
    assert [(read.memory.number, read.successor, read.is_match) for read in retrieve(ada, "green lemon tea").reads] == [
        (3, None, False),
        (1, 3, True),
    ]
    assert found(ada, "green lemon tea", limit=1, max_tokens=100) == [3]
    assert "- Ann drinks tea and has a cat\n- older: Ann drinks green tea" in retrieve(ada, "green lemon tea").block


def test_of_a_lineage_only_the_result_with_more_of_the_query_a_word_is_returned(ada: Agent) -> None:
    merge(ada, "Ann likes tea and a cat", "Ann likes tea", "Ann likes a cat")
    assert found(ada, "tea cat") == [3]
    assert sorted(found(ada, "tea cat", duplicates=True)) == [1, 2, 3]
    [old] = remember(ada, "Bo lives in the old town by the river")
    operations.revise(ada, old, ME, content="Bo lives in the old town", session=SESSION)
    operations.revise(ada, old, ME, content="Bo has moved", session=SESSION)
    assert found(ada, "old town") == [4, 5], "text 6 is a part of text 5"


def test_the_present_fact_comes_first(ada: Agent) -> None:
    [old] = remember(ada, "Ann lives in Rome")
    operations.revise(ada, old, ME, content="Ann has moved, and since May she lives in Oslo", session=SESSION)
    [left, _] = remember(ada, "Bo lives in Rome", "Bo has moved and lives in Oslo now")
    operations.demote(ada, [left], ME)
    for who in ("Ann", "Bo"):
        first, second = retrieve(fresh(ada), f"Where does {who} live?").reads[:2]
        assert ("Oslo" in first.opened.content, "Rome" in second.opened.content) == (True, True), who


def test_without_room_a_successor_is_cut_to_what_concerns_its_source(ada: Agent) -> None:
    text = f"{DETAILS}; Bo lives in Oslo now. {'The weather was fine. ' * 30}"
    merge(ada, text, "Bo moved to a flat in Rome for work", "Cal has a boat")
    successor, source = retrieve(ada, "Where is the flat of Bo for work", max_tokens=40).reads
    assert (successor.opened.content, successor.is_excerpt) == ("Bo lives in Oslo now.", True)
    assert (source.memory.number, source.successor, source.is_excerpt) == (1, 3, False)
    whole = retrieve(ada, "Where is the flat of Bo for work", max_tokens=400)
    assert (whole.reads[0].opened.content, whole.reads[0].is_excerpt) == (text, False)
    assert retrieve(ada, "flat in Rome", max_tokens=2).reads == (), "never without the successor"


def test_a_successor_that_says_nothing_else_needs_no_room(ada: Agent) -> None:
    [number] = remember(ada, DETAILS)
    operations.revise(ada, number, ME, content="Ann met Bo at the harbour", session=SESSION)
    result = retrieve(ada, "grey seals", max_tokens=27)
    assert [(read.memory.number, read.opened.content) for read in result.reads] == [(1, "…"), (2, DETAILS)]
    assert result.block == f"# What you remember of this\n- older: {DETAILS}\n"
    assert result.tokens <= 27


def test_a_superseded_memory_is_left_out_if_its_successor_cannot_be_seen(ada: Agent) -> None:
    numbers = remember(ada, "green tea", category="technical") + remember(ada, "a cat", category="behavioral")
    operations.consolidate(ada, numbers, "a drink and a pet", ME, category="behavioral", session=SESSION)
    assert found(ada, "green tea", duplicates=True) == [3, 1]
    settings(ada, categories__behavioral__enabled=False)
    assert found(ada, "green tea", duplicates=True) == []


def test_the_words_of_a_template_find_nothing(ada: Agent) -> None:
    topics.evolve(ada, "Ferries", ME, Stage(insights=("They leave early",), questions=("When?",)))
    remember(ada, "## Context\nA storm\n\n## Outcome\nWe stayed", category="technical")
    for query in ("evolution history", "scope", "recorded", "important concepts", "outcome"):
        assert found(ada, query) == []
    assert (found(ada, "ferries"), found(ada, "early"), found(ada, "storm")) == ([1], [1], [2])


def test_the_same_words_in_a_recorded_prompt_are_found(ada: Agent) -> None:
    talk(ada, "## Analysis\n- Key Learnings: none\n- Not recorded: the tide", "Thanks")
    assert (found(ada, "learnings"), found(ada, "tide"), found(ada, "recorded")) == ([1], [1], [1])


def test_empty_fields_are_not_in_the_block_and_count_no_tokens(ada: Agent) -> None:
    topics.evolve(ada, "Ferries", ME, Stage(insights=("They leave early",)))
    done = retrieve(fresh(ada), "ferries")
    assert "They leave early" in done.block
    assert "Not recorded" not in done.block + done.reads[0].opened.content
    assert len(retrieve(fresh(ada), "ferries", max_tokens=done.tokens).reads) == 1
    assert retrieve(fresh(ada), "ferries", max_tokens=done.tokens - 1).left_out == 1


def test_each_use_is_counted(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea", "green tea", "milk")
    remember(bob, "tea")
    reading.search(fresh(ada), "tea", filters=Filters())  # a search counts nothing
    retrieve(fresh(ada), "tea", now=NOW)
    later = NOW + timedelta(days=2)
    assert retrieve(fresh(ada), "green", now=later).times == {2: 2}
    rows = Recall.objects.filter(agent=ada).order_by("number").values_list("number", "times", "first_at", "last_at")
    assert list(rows) == [(1, 1, NOW, NOW), (2, 2, NOW, later)]
    assert not Recall.objects.filter(agent=bob).exists()


@pytest.mark.database
def test_memories_are_found_even_if_they_cannot_be_counted(ada: Agent) -> None:
    remember(ada, "tea ZEBRA")
    locked = mock.patch.object(usage, "with_timeout", side_effect=OperationalError("database is locked"))
    with locked, capture_logs() as logged:
        result = retrieve(fresh(ada), "tea ZEBRA")
    assert (numbers(result), result.times) == ([1], {})
    [line] = [each for each in logged if each["event"] == "use of memories not noted"]
    assert (line["agent"], line["error"], "ZEBRA" in repr(logged)) == (ada.pk, "OperationalError", False)


@pytest.mark.parametrize("count", [2, 200])
def test_the_queries_do_not_grow_with_the_memories(ada: Agent, count: int) -> None:
    settings(ada, search__max_results=1_000)
    remember(ada, *["tea"] * count)
    agent = fresh(ada)
    retrieve(agent, "tea")  # builds the index
    statements = [sql for sql in asked(lambda: retrieve(agent, "tea")) if not sql.startswith(("BEGIN", "SELECT set_"))]
    counting = ["INSERT memory_recall", "SELECT memory_recall", "UPDATE memory_recall"]
    assert statements == ["SELECT memory_memory", "SELECT memory_memory", *counting]  # newer ones, rows
    assert len(usage.times(agent)) == count


@pytest.mark.database
def test_counts_are_right_beyond_the_parameters_of_one_statement(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "max_query_params", 12)
    for times in (1, 2):
        assert usage.note(ada, range(9, 0, -1), NOW) == dict.fromkeys(range(1, 10), times)


@pytest.fixture
def threads(transactional_db: None) -> Iterator[None]:
    yield
    connections.close_all()


@pytest.mark.database
def test_concurrent_recalls_are_all_counted(threads: None, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "PATIENCE", 30)
    remember(ada, *["tea"] * 8)
    start = threading.Barrier(6)

    def use(order: int) -> None:
        start.wait()
        try:
            for _ in range(5):
                usage.note(ada, list(range(1, 9))[::order], NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, (1, -1) * 3))
    assert usage.times(ada) == dict.fromkeys(range(1, 9), 30)


@pytest.mark.sqlite
def test_retrieval_does_not_wait_long_for_a_locked_database(
    threads: None, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import can lock it for minutes. SQLite's own timeout is half a minute."""
    monkeypatch.setattr(usage, "PATIENCE", 0)
    remember(ada, "tea")
    agent = fresh(ada)
    retrieve(agent, "tea")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            held.set()
            done.wait(20)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait(20)
        result = retrieve(agent, "tea")
        done.set()
    assert (numbers(result), result.times) == ([1], {})
    assert retrieve(agent, "tea").times == {1: 2}
    assert connection.patience is None  # type: ignore[attr-defined]  # config.sqlite3's


JUNE_10 = datetime(2026, 6, 10, 15, 30, tzinfo=UTC)
PERIODS: dict[str, list[tuple[str, str]]] = {
    "What did Ann buy on 2023-06-12?": [("2023-06-12", "2023-06-20")],
    "What did Ann buy in 2023-12?": [("2023-12-01", "2024-01-08")],
    "What did Ann buy on 12 June 2023?": [("2023-06-12", "2023-06-20")],
    "What did Ann buy on June 12, 2023?": [("2023-06-12", "2023-06-20")],
    "What did Ann buy in 2023?": [("2023-01-01", "2024-01-01")],
    "In 2021 or in May 2023?": [("2023-05-01", "2023-06-08"), ("2021-01-01", "2022-01-01")],
    "What was said yesterday?": [("2026-06-09", "2026-06-10")],
    "this week": [("2026-06-03", "2026-06-11")],
    "What did we decide Last Month?": [("2026-04-09", "2026-06-11")],
    "on 31 June 2023": [],
    "What may Ann buy? Which way did they march?": [],
    "port 2023.5, 12023 or 1.2024, 192.168.2000.1": [],
}
WORDS = ["12", "31st", "0", "June", "May", "2023", "1999", "-", "of", ",", "last", "week", "today", "2023-02-30", "٣"]


def dates(query: str) -> list[tuple[str, str]]:
    return [(f"{begin:%Y-%m-%d}", f"{end:%Y-%m-%d}") for begin, end in periods(query, JUNE_10)]


def test_periods_are_found() -> None:
    assert {query: dates(query) for query in PERIODS} == PERIODS


def test_a_month_without_a_year_means_that_month_of_every_past_year() -> None:
    found = dates("What did Ann buy in May?")
    assert {("2026-05-01", "2026-06-08"), ("1990-05-01", "1990-06-08")} <= set(found)
    assert all(begin.endswith("-05-01") for begin, _ in found)


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=12).map(" ".join))
def test_every_query_is_accepted(query: str) -> None:
    assert all(begin < end for begin, end in periods(query, JUNE_10))


def test_many_dates_in_a_question_count_once_and_are_limited() -> None:
    assert len(periods("January 1, " * 180, NOW)) == 51
    dates = " ".join(f"{month} {day}," for month in ("January", "May") for day in range(1, 29))
    assert len(periods(dates, NOW)) == 500
