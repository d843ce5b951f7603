"""Similar memories and near duplicates: which texts count as the same, and how long the search takes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinement.similarity import clusters, covers, near_groups
from tests.growth import growth

BASE = "On Mondays the team reviews the open bookings, and Jonas writes the summary for Mirela."

SAME = [
    "On Mondays the team reviews open bookings, and Jonas writes the summary for Mirela",
    "On Mondays the team always reviews the open bookings, and Jonas writes the summary for Mirela.",
    "Note: on Mondays the team reviews the open bookings, and Jonas writes the summary for Mirela.",
    "On Mondays, the team reviews the open bookings – and Jonas writes the summary for Mirela.",
    "on Mondays the team reviews the open bookings; and Jonas writes the summary for Mirela!",
]
LOOK_ALIKES = [
    ("The pool has 40 connections on db-1.", "The pool has 60 connections on db-1."),
    ("The pool has 40 connections on db-1.", "The pool has 40 connections on db-2."),
    ("Reviews with Priya are on 6 May.", "Reviews with Priya are on 26 May."),
    ("Ask Ingrid about the layout.", "Ask Marit about the layout."),
    ("Imports may overwrite corrected heights.", "Imports may not overwrite corrected heights."),
    ("He does not always answer the phone.", "He does not answer the phone."),
    ("Heights are given in metres.", "Heights are given in feet."),
    ("Tideline 2.3 went to the stores.", "Tideline 2.4 went to the stores."),
    ("Retries are enabled for mails.", "Retries are disabled for mails."),
    ("Priya prefers screenshots over recordings.", "Priya prefers recordings over screenshots."),
    ("Tomasz reviews the code of Jonas.", "Jonas reviews the code of Tomasz."),
    ("Only Priya can approve a release.", "Priya can only approve a release."),
    ("Priya is out on Mondays. On Fridays Jonas is.", "Priya is out on Fridays. On Mondays Jonas is."),
    ("Is the harbour open in winter?", "The harbour is open in winter."),
    ("The office usually closes at noon.", "The office always closes at noon."),
    ("The season went well 🙂", "The season went well 🙁"),
    ("テントは青い", "テントは赤い"),
    ("We think will is the reason.", "We think Will is the reason."),
    ("Call Ana, not Ben.", "Call Ben, not Ana."),
    ("Tea and milk are cold.", "Tea or milk are cold."),
]


@pytest.mark.parametrize("text", SAME)
def test_other_punctuation_and_adverbs_make_a_near_duplicate(text: str) -> None:
    assert near_groups([BASE, text])
    assert near_groups([text, BASE])


def test_look_alikes_are_not_near_duplicates() -> None:
    for one, other in LOOK_ALIKES:
        assert near_groups([one, other]) == near_groups([other, one]) == []


def test_spellings_of_one_word_are_the_same() -> None:
    contracted, full = (
        "He doesn't answer e-mail; six marinas can't pay.",
        "He does not answer email, 6 marinas cannot pay.",
    )
    assert near_groups([contracted, full])


def test_texts_without_words_match_only_themselves() -> None:
    assert near_groups(["🙂", "🙂"])
    assert near_groups(["...", "…!"]) == []
    assert clusters(["", "", "🙂"]) == [[0, 1]]


def test_similarity_ignores_order_and_is_a_share() -> None:
    texts = ["berth by the breakwater", "by the breakwater berth", "one two three four", "one two three five"]
    assert clusters(texts) == [[0, 1], [2, 3]]
    assert clusters(["one two three four", "one two five six", "invoice"]) == []


def test_the_fullest_text_of_a_group_has_every_adverb_of_the_others() -> None:
    [group] = near_groups([SAME[0], "Port Ellery has 118 berths.", SAME[1], BASE])
    assert (group.members, group.fullest) == ((0, 2, 3), 2)
    assert [covers([SAME[1]], BASE), covers([BASE], SAME[1]), covers([BASE], BASE)] == [True, False, True]
    assert near_groups(["The office always closes at noon.", "The office really closes at noon."]) == []


def test_clusters_join_similar_texts_only() -> None:
    texts = [BASE, "Port Ellery has 118 berths.", SAME[1], "Port Ellery has 120 berths.", "Skarvik is full in August."]
    assert clusters(texts) == [[0, 2], [1, 3]]
    assert clusters([]) == []


def test_only_the_beginning_of_a_long_text_is_compared() -> None:
    same = " ".join(f"word{number}" for number in range(300))
    assert clusters([f"{same} {end * 500}" for end in ("some ", "other ")]) == [[0, 1]]


@given(st.lists(st.sampled_from([*SAME, BASE, *sum(LOOK_ALIKES, ())]), max_size=20), st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_of_the_texts_does_not_matter(texts: list[str], chance: random.Random) -> None:
    shuffled = chance.sample(texts, len(texts))
    assert _contents(texts, clusters(texts)) == _contents(shuffled, clusters(shuffled))
    groups, shuffled_groups = ([list(group.members) for group in near_groups(each)] for each in (texts, shuffled))
    assert _contents(texts, groups) == _contents(shuffled, shuffled_groups)


@given(st.text(max_size=80), st.text(max_size=80))
@settings(deadline=None)
def test_comparison_is_symmetric_for_any_texts(one: str, other: str) -> None:
    assert near_groups([one, one])
    assert bool(near_groups([one, other])) == bool(near_groups([other, one]))
    assert clusters([one, other]) == clusters([other, one])


@given(st.lists(st.sampled_from([*SAME, *sum(LOOK_ALIKES, ())]), max_size=12))
@settings(max_examples=50, deadline=None)
def test_every_pair_in_a_group_is_a_near_duplicate(texts: list[str]) -> None:
    for group in near_groups(texts):
        assert all(near_groups([texts[i], texts[j]]) for i in group.members for j in group.members)
        assert all(covers([texts[group.fullest]], texts[i]) for i in group.members)


@pytest.mark.parametrize(("make", "count"), [("prose", 2_000), ("one template", 2_000), ("one wording", 100)])
def test_time_grows_linearly_with_the_number_of_texts(make: str, count: int) -> None:
    texts = {size: _many(make, size) for size in (count, 4 * count)}
    # Four times the texts: quadratic growth would be sixteen times.
    assert growth(lambda size: (clusters(texts[size]), near_groups(texts[size])), count) < 8


def _contents(texts: list[str], groups: list[list[int]]) -> list[list[str]]:
    return sorted(sorted(texts[i] for i in group) for group in groups)


def _many(make: str, count: int) -> list[str]:
    if make == "one template":
        return [f"The nightly backup of host {i} ended without errors after {i % 97} seconds" for i in range(count)]
    if make == "one wording":
        return [f"The harbour is open{',' * (i % 50)} and so is the office{'.' * (i // 50)}" for i in range(count)]
    chance = random.Random(7)
    words = [f"word{i}" for i in range(5_000)]
    return [" ".join(chance.choices(words, k=20)) for _ in range(count)]


def test_texts_that_differ_late_in_a_long_series_of_signs_are_no_duplicates() -> None:
    assert not covers(["The code is " + "★" * 40 + "☆"], "The code is " + "★" * 40 + "✦")
    assert covers(["The code is " + "★" * 40], "The code is " + "★" * 40)
