"""Similar memories and near duplicates: which texts count as the same, and how long the search takes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinement import similarity
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
    ("The code is " + "★" * 40 + "☆", "The code is " + "★" * 40 + "✦"),
]


def test_other_punctuation_adverbs_and_spellings_make_a_near_duplicate() -> None:
    for text in SAME:
        assert near_groups([BASE, text])
        assert near_groups([text, BASE])
    full = "He does not answer mail. It is late, and the marinas cannot pay."
    assert near_groups(["He doesn't answer mail; it's late, and the marinas can't pay.", full])


def test_look_alikes_are_not_near_duplicates() -> None:
    for one, other in LOOK_ALIKES:
        assert near_groups([one, other]) == near_groups([other, one]) == []


def test_texts_without_words_match_only_themselves() -> None:
    assert near_groups(["🙂", "🙂"])
    assert near_groups(["...", "…!"]) == []
    assert clusters(["", "", "🙂"]) == [[0, 1]]


def test_the_fullest_text_of_a_group_has_every_adverb_of_the_others() -> None:
    [group] = near_groups([SAME[0], "Port Ellery has 118 berths.", SAME[1], BASE])
    assert (group.members, group.fullest) == ((0, 2, 3), 2)
    assert [covers([SAME[1]], BASE), covers([BASE], SAME[1]), covers([BASE], BASE)] == [True, False, True]
    assert near_groups(["The office always closes at noon.", "The office really closes at noon."]) == []


def test_clusters_join_similar_texts_only() -> None:
    texts = [BASE, "Port Ellery has 118 berths.", SAME[1], "Port Ellery has 120 berths.", "Skarvik is full in August."]
    assert clusters(texts) == [[0, 2], [1, 3]]
    assert clusters(["berth by the breakwater", "one two three four", "by the breakwater berth"]) == [[0, 2]]
    assert clusters([]) == []


@given(st.lists(st.sampled_from([*SAME, BASE, *sum(LOOK_ALIKES, ())]), max_size=14), st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_of_the_texts_does_not_matter(texts: list[str], chance: random.Random) -> None:
    shuffled = chance.sample(texts, len(texts))
    assert _contents(texts, clusters(texts)) == _contents(shuffled, clusters(shuffled))
    groups, shuffled_groups = ([list(group.members) for group in near_groups(each)] for each in (texts, shuffled))
    assert _contents(texts, groups) == _contents(shuffled, shuffled_groups)
    for group in near_groups(texts):
        assert all(near_groups([texts[i], texts[j]]) for i in group.members for j in group.members)
        assert all(covers([texts[group.fullest]], texts[i]) for i in group.members)


@given(st.text(max_size=80), st.text(max_size=80))
@settings(deadline=None)
def test_comparison_is_symmetric_for_any_texts(one: str, other: str) -> None:
    assert near_groups([one, one])
    assert bool(near_groups([one, other])) == bool(near_groups([other, one]))
    assert clusters([one, other]) == clusters([other, one])


@pytest.mark.parametrize("template", [True, False])
def test_time_grows_linearly_with_the_number_of_texts(template: bool) -> None:
    words = [f"word{i}" for i in range(5_000)]
    host = "The nightly backup of host {} ended without errors after {} seconds"
    prose = [" ".join(random.Random(i).choices(words, k=20)) for i in range(8_000)]
    texts = [host.format(i, i % 97) for i in range(8_000)] if template else prose
    # Four times the texts: quadratic growth would be sixteen times.
    assert growth(lambda size: (clusters(texts[:size]), near_groups(texts[:size])), 2_000) < 8


def _contents(texts: list[str], groups: list[list[int]]) -> list[list[str]]:
    return sorted(sorted(texts[i] for i in group) for group in groups)


def test_texts_that_differ_late_in_a_long_series_of_signs_are_no_duplicates() -> None:
    assert not covers(["The code is " + "★" * 40 + "☆"], "The code is " + "★" * 40 + "✦")
    assert covers(["The code is " + "★" * 40], "The code is " + "★" * 40)


def test_the_time_to_compare_grows_with_the_length() -> None:
    """Points between signs were read again from each point: 10,000 characters took two seconds."""
    unit = "…\u1fc1" * 15 + "."

    def compare(size: int) -> None:
        text = ("hello " + unit * 400)[:size]
        covers([text + "x"], text)

    assert growth(compare, 2_500) < 8


def test_the_comparison_of_all_texts_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of signs that become several letters kept both workers busy for minutes."""
    texts = ["Ann prefers green tea to black tea.", "Ann prefers green tea to the black tea."]
    assert similarity.clusters(texts) == [[0, 1]]
    monkeypatch.setattr(similarity, "MOST_SECONDS", -1.0)
    assert similarity.clusters(texts) == []
