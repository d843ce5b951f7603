"""The report of what a merge or a rewrite leaves out."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.models import Agent, Kind
from refinement.dates import Text, still_relative
from refinement.losses import RELATIVE, Specific, ignored, missing
from tests.growth import growth
from tests.refining import Held, fill, notice, opened, protected, refused
from tests.steps import remember

# A source, the kind of the passage that the result leaves out, the passage, and another way to write it.
KINDS = [
    ("The hall seats 1,250 guests at most.", "number", "1,250", "1250 guests"),
    ("The shop opens at 07:30 on weekdays.", "number", "07:30", "from 7:30"),
    ("It takes three cooks or 3 waiters.", "number", "3", "three waiters"),
    ("The lease ends on 2026-03-31 for good.", "date", "2026-03-31", "31 March 2026"),
    ("The fair is on May 7, 2023 this time.", "date", "May 7, 2023", "the 7th May 2023"),
    ('The sign says "keep out" in red paint.', "quote", '"keep out"', "a sign “Keep out”"),
    ("The plumber met Katarina at the house.", "name", "Katarina", "Katarina's plumber"),
    ("The menu is at https://cafe.test/menu, as before.", "url", "https://cafe.test/menu", "(https://cafe.test/menu)"),
    ("Mail office@cafe.test for a table.", "email", "office@cafe.test", "Office@cafe.test"),
    ("The build reads MAX_WORKERS at start.", "identifier", "MAX_WORKERS", "`MAX_WORKERS`"),
    ("The file /etc/app.conf is read once.", "identifier", "/etc/app.conf", "in /etc/app.conf."),
    ("We run v1.2.3 of it.", "identifier", "v1.2.3", "(v1.2.3)"),
]


# Honest merges: the sources with their days, and the new text. Nothing of them is lost.
HONEST = [
    (
        {"2024-03-07": "Priya signed the lease last Friday.", "2024-04-02": "The lease of Priya costs 1,250 euros."},
        "Priya's lease (signed on 2024-03-01) costs 1250 euros.",
    ),
    (
        {"2024-03-07": "Tom ran two marathons last year.", "2024-05-20": "Tom wants to run a marathon next month."},
        "Tom ran 2 marathons in 2023; on 2024-05-20 he wanted to run another in June 2024.",
    ),
    (
        {"2024-03-07": "The stove was repaired last week.", "2024-08-11": "They bought a new stove two weeks ago."},
        "The stove was repaired in the week before 7 March 2024. A new one was bought in the week of 2024-07-22.",
    ),
]
# Sources, the new text, and the number of the ignored source.
IGNORED = [
    (["Olga paints boats with her sister.", "The printer is jammed every morning."], "Olga paints with her.", [1]),
    (
        ["Olga paints boats with her sister.", "The printer is jammed every morning."],
        "Olga paints with her; the printer jams.",
        [],
    ),
    (["Olga paints boats with her sister.", "The tea is hot."], "Olga paints boats with her sister.", []),
    (["Olga paints boats with her sister.", "Der Drucker ist jeden Morgen verstopft."], "Olga paints with her.", []),
    (["Olga malt mit der Schwester.", "Der Drucker ist jeden Morgen verstopft."], "Olga malt mit der Schwester.", [1]),
    (["Olga paints boats with her sister.", "プリンターは毎朝止まります。"], "Olga paints boats with her sister.", []),
]


def dated(sources: dict[str, str]) -> dict[int, Text]:
    return {number: Text(text, date.fromisoformat(day)) for number, (day, text) in enumerate(sources.items())}


def losses(source: str, result: str, language: str) -> list[Specific]:
    return [one for _, one in missing({0: Text(source, None)}, result, language)]


@pytest.mark.parametrize(("source", "kind", "text", "other"), KINDS)
def test_each_kind_is_reported_unless_it_is_written_differently(source: str, kind: str, text: str, other: str) -> None:
    assert (kind, text) in [(one.kind, one.text) for one in losses(source, "Nothing.", "english")]
    assert text not in [one.text for one in losses(source, f"Now {other}.", "english")]


@pytest.mark.parametrize(
    ("source", "result", "text"),
    [
        ("It costs 40 euros.", "It costs 400 euros.", "40"),
        ("It ends on 7 May 2023.", "It ends on 8 May 2023.", "7 May 2023"),
        ("We met Ana.", "We met Anatol.", "Ana"),
    ],
)
def test_a_similar_passage_does_not_replace_a_lost_one(source: str, result: str, text: str) -> None:
    assert [one.text for one in losses(source, result, "english")] == [text]


@pytest.mark.parametrize(("sources", "result"), HONEST)
def test_an_honest_merge_loses_nothing(sources: dict[str, str], result: str) -> None:
    assert list(missing(dated(sources), result, "english")) == []
    assert (still_relative(dated(sources), result), ignored(dated(sources), result, "english")) == ([], [])


def test_a_relative_date_without_its_date_is_lost() -> None:
    sources = dated({"2024-03-07": "Priya signed the lease last Friday.", "2024-04-02": "She moved in."})
    for result in ("Priya signed the lease and moved in.", "Priya signed the lease on 2024-03-08 and moved in."):
        [(number, one)] = missing(sources, result, "english")
        assert (number, one.kind, one.text) == (0, RELATIVE, "last Friday")


@pytest.mark.parametrize(("texts", "result", "expected"), IGNORED)
def test_a_source_without_a_content_word_in_the_result_is_ignored(
    texts: list[str], result: str, expected: list[int]
) -> None:
    assert ignored({number: Text(text, None) for number, text in enumerate(texts)}, result, "german") == expected


def test_common_words_at_the_start_of_a_sentence_are_not_names() -> None:
    assert losses("The tea is hot. Where is it?", "", "english") == []
    assert losses("Der Tee ist kalt.", "", "german") != losses("Der Tee ist kalt.", "", "other")


@given(st.text(max_size=200))
@settings(deadline=None)
def test_an_unchanged_text_loses_nothing(text: str) -> None:
    assert losses(text, text, "english") == []


@pytest.mark.parametrize("piece", ["a:", "-::-", "a.", "«", '"', "a", "1.", "/a", "@a", "a-", "www.", "May ", "1,"])
def test_time_grows_linearly_with_the_text(piece: str) -> None:
    # Four times the text: quadratic growth would be sixteen times.
    assert growth(lambda length: losses(piece * length, piece * length, "english"), 2_000) < 8


def opened_with(agent: Agent, *texts: str) -> Held:
    fill(agent, 8, 20)
    remember(agent, *texts)
    return opened(agent)


def test_a_merge_names_lost_passages_and_their_sources(ada: Agent) -> None:
    held = opened_with(ada, "The hall seats 250 guests at most.", "The plumber met Katarina at the house.")
    answer = held.call("consolidate_memories", ids_to_merge=[9, 10], new_content="The plumber was at the hall.")
    assert answer["left_out"] == [
        {"id": 9, "kind": "number", "text": "250"},
        {"id": 10, "kind": "name", "text": "Katarina"},
    ]
    content = "At the hall (250 seats) the plumber met Katarina."
    assert held.call("update_memory", id=answer["id"], content=content)["ok"]
    assert held.call("complete_refinement", summary="Done.")["left_out"] == held.row.left_out == 2
    assert "Details reported as left out of core memory: 2." in notice(ada)


def test_a_merge_that_ignores_a_source_is_refused(ada: Agent) -> None:
    held = opened_with(ada, "The hall is closed in winter.", "The plumber comes on Mondays.")
    merge = {"ids_to_merge": [9, 10], "new_content": "The hall is closed in winter."}
    answer = refused(held, "source_ignored", "consolidate_memories", merge)
    assert answer["error"].startswith("Nothing of memory 10 is in the new text. Include it, leave it out of")


def test_a_passage_in_another_core_memory_is_not_lost(ada: Agent) -> None:
    fill(ada, 8, 20)
    remember(ada, "Katarina has 250 keys.", "The 250 keys are in the safe.", "It is Katarina's.")
    protected(ada, 11)
    merge = {"ids_to_merge": [9, 10, 11], "new_content": "She has keys, and they are in the safe."}
    answer = opened(ada).call("consolidate_memories", **merge)
    assert answer["left_out_as_constitutional"] == [11]
    assert answer["left_out"] == [{"id": number, "kind": "number", "text": "250"} for number in (9, 10)]


@pytest.mark.parametrize("how", [{"kind": Kind.JOURNAL}, {"category": "credentials"}])
def test_a_passage_only_in_a_journal_or_private_memory_is_lost(ada: Agent, how: dict[str, str]) -> None:
    remember(ada, "Katarina called.", **how)
    held = opened_with(ada, "The plumber met Katarina.")
    assert held.call("update_memory", id=10, content="The plumber met her.")["left_out"][0]["text"] == "Katarina"


def test_an_answer_lists_at_most_fifty_passages(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinement.effects.SEARCH_SECONDS", 60)  # on a busy machine, 0.3 s are over sooner
    fill(ada, 60, 200)
    remember(ada, " ".join(f"Item {n} costs {n + 1000} euros." for n in range(200)))
    assert len(opened(ada).call("update_memory", id=61, content="Items cost something.")["left_out"]) == 50


def test_passages_are_not_searched_for_long(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinement.effects.SEARCH_SECONDS", -1)
    remember(ada, "Katarina called.", "Katarina wrote.")
    answer = opened(ada).call("update_memory", id=1, content="She called.")
    assert answer["left_out"] == [{"id": 1, "kind": "name", "text": "Katarina"}], "it may list too much"
