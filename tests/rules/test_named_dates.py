"""Periods that a query names, such as "in May 2023"."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from memory.recording.retrieval import periods

NOW = datetime(2026, 6, 10, 15, 30, tzinfo=UTC)
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
    return [(f"{begin:%Y-%m-%d}", f"{end:%Y-%m-%d}") for begin, end in periods(query, NOW)]


def test_periods_are_found() -> None:
    assert {query: dates(query) for query in PERIODS} == PERIODS


def test_a_month_without_a_year_means_that_month_of_every_past_year() -> None:
    found = dates("What did Ann buy in May?")
    assert {("2026-05-01", "2026-06-08"), ("1990-05-01", "1990-06-08")} <= set(found)
    assert all(begin.endswith("-05-01") for begin, _ in found)


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=12).map(" ".join))
def test_every_query_is_accepted(query: str) -> None:
    assert all(begin < end for begin, end in periods(query, NOW))
