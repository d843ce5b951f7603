"""Relative dates: what they mean, and where the model and the agent see them."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from memory.models import Agent
from memory.search import context
from refinement.dates import Text
from tests.growth import growth
from tests.refining import entries, fill, opened
from tests.steps import fresh, remember, row

FRIDAY, MONDAY = date(2023, 10, 13), date(2023, 10, 9)

CLEAR = [
    (FRIDAY, "We met last Tuesday.", "last Tuesday", "2023-10-10"),
    (FRIDAY, "We met last Friday.", "last Friday", "2023-10-06"),
    (FRIDAY, "Yesterday's meeting was long.", "Yesterday", "2023-10-12"),
    (FRIDAY, "It rained last night.", "last night", "2023-10-12"),
    (FRIDAY, "She called this morning.", "this morning", "2023-10-13"),
    (FRIDAY, "The launch is tomorrow.", "tomorrow", "2023-10-14"),
    (FRIDAY, "We met two days ago.", "two days ago", "2023-10-11"),
    (FRIDAY, "We met last week.", "last week", "week of 2023-10-02"),
    (FRIDAY, "We met this past weekend.", "this past weekend", "weekend of 2023-10-07"),
    (MONDAY, "We hiked two weekends ago.", "two weekends ago", "weekend of 2023-09-30"),
    (FRIDAY, "We hike this weekend.", "this weekend", "weekend of 2023-10-14"),
    (FRIDAY, "The show is next month.", "next month", "2023-11"),
    (FRIDAY, "She moved 11 months ago.", "11 months ago", "2022-11"),
    (FRIDAY, "They met last year's winner.", "last year", "2022"),
    (FRIDAY, "He began three years ago.", "three years ago", "2020"),
    (MONDAY, "We meet this Thursday.", "this Thursday", "2023-10-12"),
    (FRIDAY, "We meet next Thursday.", "next Thursday", "2023-10-19"),
]
UNCLEAR = [  # or written out
    (MONDAY, "We meet next Thursday."),  # in three days, or in ten
    (FRIDAY, "We met this Thursday."),
    (MONDAY, "We met this weekend."),
    (FRIDAY, "Today's youth needs it."),
    (FRIDAY, "It took the last week of June."),
    (FRIDAY, "It was over the last year."),
    (FRIDAY, "That was more than a year ago."),
    (FRIDAY, "She sang “Yesterday” well."),
    (FRIDAY, "He met her recently, a few weeks ago, last summer."),
    (FRIDAY, "It was the day before yesterday."),
    (FRIDAY, "It was last week (2023-10-02)."),
    (date(5, 1, 1), "It was twelve years ago."),
    (date.max, "It is tomorrow."),
]


def test_clear_dates_are_resolved_and_others_are_left_out() -> None:
    for day, text, words, meaning in CLEAR:
        assert Text(text, day).relative_dates == {words: meaning}
    assert [text for day, text in UNCLEAR if Text(text, day).relative_dates] == []


@given(st.text(), st.dates())
def test_any_text_of_any_day_is_read(text: str, day: date) -> None:
    assert isinstance(Text(f"{text} 99 years ago, next year, {text}", day).relative_dates, dict)


def test_time_grows_linearly_with_the_text() -> None:
    assert growth(lambda length: Text("this past " * length, FRIDAY).relative_dates, 2_000) < 8


def test_the_ledger_shows_what_a_relative_date_means(ada: Agent) -> None:
    remember(ada, "We met last Tuesday.", "We met.", origin=datetime(2023, 10, 13, 9, tzinfo=UTC))
    dated, plain = (entry.record() for entry in entries(ada))
    assert dated["when"] == {"last Tuesday": "2023-10-10"}
    assert not {"when", "origin_latest"} & plain.keys()


def test_a_merge_shows_its_range_and_the_relative_dates_that_it_keeps(ada: Agent) -> None:
    fill(ada, 8, 20)
    remember(ada, "Ann met Bob last Tuesday.", origin=datetime(2023, 10, 13, tzinfo=UTC))
    remember(ada, "Ann and Bob play chess.", origin=datetime(2024, 2, 1, tzinfo=UTC))
    held = opened(ada)
    answer = held.call("consolidate_memories", ids_to_merge=[9, 10], new_content="Ann met Bob last Tuesday; chess.")
    assert answer["relative_dates"] == [{"id": 9, "text": "last Tuesday", "date": "2023-10-10"}]
    [record] = [entry.record() for entry in entries(ada) if entry.memory.number == answer["id"]]
    assert (record["origin"], record["origin_latest"]) == ("2023-10-13", "2024-02-01")
    assert "when" not in record  # from which day?
    assert "- 2023-10-13 to 2024-02-01: Ann met Bob" in context.read(fresh(ada)).as_text()
    content = "Ann met Bob on 2023-10-10; chess."
    assert "relative_dates" not in held.call("update_memory", id=answer["id"], content=content)
    assert row(ada, answer["id"]).origin_latest == datetime(2024, 2, 1, tzinfo=UTC)
