"""The query language, and the order of results."""

import pickle
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.errors import SlowSearch
from memory.search import holdings, lineages, ranking, selection, words
from memory.search.holdings import Document
from memory.search.index import MOST_WORK, WORD_LIMIT, Index
from memory.search.query import QUERY_LIMIT, Query, parse
from memory.search.selection import EVERYTHING, Filters
from memory.search.words import split, split_any

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)


def document(number: int, text: str, **changes: object) -> Document:
    fields = {"tags": (), "origin": BEGINNING + timedelta(days=number), "layer": "core", "category": "", "project": ""}
    return Document(number, text, **(fields | changes))  # type: ignore[arg-type]


def index_of(*texts: str, language: str = "english") -> Index:
    index = Index(language)
    index.extend(document(number, text) for number, text in enumerate(texts, 1))
    return index


def numbers(index: Index, query: str, *, limit: int = 10, **filters: object) -> list[int]:
    return [hit.number for hit in index.search(query, Filters(**filters), limit=limit)]  # type: ignore[arg-type]


LAKE = ("A boat on the lake", "The lake and the mountain", "A train")
QUINCE = ("garden party", "garden walk", "garden gate", "garden wall", "old quince")
NEAR = ("support came late when our big noisy group met", "our noisy support group came late when big met")
TOWER = ("昨日東京タワーに行った", "東京 タワー", "タワー東京")
FINDS: dict[str, tuple[tuple[str, ...], str, list[int]]] = {  # texts, a query, and its results, the best first
    "any word finds, and more of them rank higher": (LAKE, "mountain lake", [2, 1]),
    "forms of a word are one word": (("She was painting houses",), "paint house", [1]),
    "case and compatibility forms": (("STRASSE", "ｆｕｌｌ width", "Ⅷ"), "straße full viii", [1, 2, 3]),
    "a rare word counts more": (QUINCE, "garden quince", [5, 1, 2, 3, 4]),
    "twice counts more than once": (("quince pear apple plum", "quince quince apple plum"), "quince", [2, 1]),
    "words of the same root come after the word": (("A counselor came", "She wants counseling"), "counseling", [2, 1]),
    "words of the same root, if the word occurs nowhere": (("She wants counseling",), "counselors", [1]),
    "words near each other rank higher": (NEAR, "support group", [2, 1]),
    "no match": (("A boat",), "submarine", []),
    "stop words beside others": (("What is it", "A boat"), "what is the boat", [2]),
    "stop words alone": (("A boat", "Who is it?"), "who is it", [2]),
    "a phrase stands in order": (("red car", "car red", "red fast car"), '"red car"', [1]),
    "a phrase counts its stop words": (("went to the moon", "went to a moon"), '"went to the moon"', [1]),
    "a phrase of stop words": (("to be or not to be", "not or be"), '"to be or not"', [1]),
    "a phrase with an unknown word": (("red car",), 'car "red submarine"', []),
    "several phrases must all be there": (("red car, blue boat", "red car"), '"red car" "blue boat"', [1]),
    "an excluded word excludes its forms": (("boat race", "boats and cats"), "boat -cat", [1]),
    "an excluded compound is a phrase": (("well known song", "song known well"), "song -well-known", [2]),
    "an exclusion alone lists the rest": (("the boat", "a train", "a tram"), "-boat", [3, 2]),
    "an excluded stop word alone": (("the boat", "a train", "a tram"), "-the", [3, 2]),
    "an excluded phrase alone": (("the boat", "a train", "a tram"), '-"the boat"', [3, 2]),
    "chinese by its character pairs": (("我喜欢喝绿茶", "我喜欢咖啡"), "绿茶", [1]),
    "a single character": (("猫が好き", "黒猫", "犬"), "猫", [1, 2]),
    "a CJK phrase by its characters": (TOWER, '"東京タワー"', [1]),
    "a CJK phrase with a space": (TOWER, '"東京 タワー"', [1, 2]),
    "scripts side by side": (("iPhoneを買った",), "iphone", [1]),
    "right-to-left text": (("שלום עולם", "مرحبا بالعالم"), "עולם", [1]),
}
ANY_ORDER = {"case and compatibility forms", "a single character", "a CJK phrase with a space"}


@pytest.mark.parametrize("behaviour", FINDS)
def test_a_query_finds(behaviour: str) -> None:
    texts, query, expected = FINDS[behaviour]
    found = numbers(index_of(*texts), query)
    assert (sorted(found) if behaviour in ANY_ORDER else found) == expected
    assert numbers(index_of(*texts), query, limit=0) == []


def test_stems_and_stop_words_are_those_of_the_language() -> None:
    assert numbers(index_of("Sie kaufte zwei Häuser", language="german"), "das Haus") == [1]
    assert numbers(index_of("the boat", "the train", language="klingon"), "the") == [1, 2]


def test_equal_scores_are_ordered_by_number() -> None:
    index = Index("english")
    for number in (30, 10, 20):
        index.extend([document(number, "the same words")])
    assert numbers(index, "same words") == [10, 20, 30]


def test_common_words_count_for_the_rank_of_the_best_results() -> None:
    rare = [f"rare pear {number}" for number in range(60)]
    common = [f"river stone {number}" for number in range(500)]
    index = index_of(*common, *rare, "rare river quince", "rare river stone")
    assert numbers(index, "rare river stone", limit=3) == [562, 561, 501]


def test_a_phrase_does_not_match_across_text_and_tags() -> None:
    index = Index("english")
    index.extend([document(1, "deep blue", tags=("sea", "salt"))])
    assert [numbers(index, query) for query in ("seas", '"blue sea"', '"sea salt"')] == [[1], [], []]


def test_a_character_with_many_meanings_may_be_repeated_in_a_phrase() -> None:
    """A single character can mean each of 2,000 terms. The time and the memory of 600 of them stay small."""
    index = index_of("".join(f"漢{chr(0x5000 + n)}" for n in range(2_000)), "漢" * 700)
    phrase = '"' + "漢 " * 600 + '"'
    tracemalloc.start()
    assert (numbers(index, phrase), numbers(index, f"-{phrase}")) == ([2], [1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_tags_are_compared_without_case() -> None:
    index = Index("english")
    index.extend([document(1, "x", tags=("Travel",)), document(2, "x", tags=("travel plans",))])
    assert [numbers(index, q) for q in ("tag:travel", 'tag:"Travel  Plans"', "-tag:TRAVEL")] == [[1], [2], [2]]
    assert numbers(index, "x", tags=("TRAVEL",)) == [1]


def test_an_empty_query_lists_what_the_filters_leave_newest_first() -> None:
    """Memories of one date are in order of number."""
    index = Index("english")
    index.extend([document(1, "boat", layer="core", category="fact", project="a")])
    index.extend([document(2, "boat", layer="constitutional", category="rule", project="b")])
    index.extend([document(3, "train", layer="core", category="rule", project="b")])
    rows: list[tuple[dict[str, object], list[int]]] = [
        ({"layers": ["core"]}, [3, 1]),
        ({"category": "rule"}, [3, 2]),
        ({"project": "a"}, [1]),
        ({"project": ""}, []),
        ({"since": BEGINNING + timedelta(days=2)}, [3, 2]),
        ({"until": BEGINNING + timedelta(days=2)}, [2, 1]),
        ({"layers": ["core"], "category": "rule"}, [3]),
        ({"without": frozenset({"rule"})}, [1]),
        ({}, [3, 2, 1]),
    ]
    for filters, expected in rows:
        assert numbers(index, "", **filters) == numbers(index, ' "" ', **filters) == expected
        assert sorted(numbers(index, "boat train", **filters)) == sorted(expected)
    index.extend(document(number, "x", origin=BEGINNING + timedelta(days=9)) for number in (5, 6, 4))
    assert numbers(index, "", limit=2) == [4, 5]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("a -b", Query("a", (), ("b",), (), ())),
        ('say "b c', Query('say " b c', (), (), (), ())),
        ('5" x 3" pipe', Query('5 " x 3 " pipe', (), (), (), ())),
        ("- -- --flag a-b", Query("- -- --flag a-b", (), (), (), ())),
        ('tag: x tag:y -tag:"z z"', Query("tag: x", (), (), ("y",), ("z z",))),
        ('("b c") -"d e"', Query("( )", ("b c",), ("d e",), (), ())),
        ("hashtag:y", Query("hashtag:y", (), (), (), ())),
    ],
)
def test_text_that_is_not_an_operator_is_literal(query: str, expected: Query) -> None:
    assert parse(query) == expected


NO_WORDS = ["-", '"', '"""', "()[*+?\\", "\0", "\ud800", "-\ud800", "tag:", "tag:\0", "🎉", "' OR 1=1 --", "\u202e"]


def test_queries_without_words_find_nothing() -> None:
    index = index_of("A boat")
    assert [query for query in NO_WORDS if numbers(index, query)] == []


@pytest.mark.parametrize("unit", ["word ", '"', '" ', "-a ", "x", 'tag:" ', "水", "e\u0301", "-", '"a" '])
def test_a_long_query_is_cut_at_the_limit(unit: str) -> None:
    index = index_of("A word", "水が")
    huge = unit * (1_000_000 // len(unit))
    assert numbers(index, huge) == numbers(index, huge[:QUERY_LIMIT])


def test_of_too_many_words_the_rarest_count() -> None:
    index = index_of(*("alpha common" for _ in range(5)), "unique")
    many = " ".join(f"nowhere{number}" for number in range(10 * WORD_LIMIT))
    assert numbers(index, f"{many} unique")[0] == 6


def test_combining_marks_belong_to_their_word() -> None:
    assert split("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert split("cafe\u0301") == ["café"]


def test_the_fast_and_the_full_word_splitter_agree() -> None:
    for code in (*range(0x250), *range(0x2000, 0x2800), *range(0x1F300, 0x1FB00)):
        for text in (chr(code), f"Ab{chr(code)}cD", f"x {chr(code)}y"):
            assert split(text) == split_any(text), hex(code)


def test_a_document_added_again_replaces_the_old_one() -> None:
    index = Index("english")
    index.extend([document(1, "A boat", layer="journal"), document(2, "A boat")])
    index.extend([document(1, "A boat", layer="core")])
    assert (numbers(index, "boat", kind="core"), numbers(index, "boat", kind="journal")) == ([1, 2], [])
    index.extend([document(1, "A boat", tags=("Red",))])
    assert numbers(index, "tag:red") == [1]
    index.remove(1)
    assert numbers(index, "boat") == [2]


def test_a_word_that_is_the_stem_of_another_word_can_be_removed() -> None:
    index = index_of("As agreed, by the lake", "The agre is a misspelling", "A boat")  # agreed → agre, agre → agr
    index.remove(1)
    index.remove(2)
    assert numbers(index, "agreed agre boat") == [3]


def test_a_removed_memory_is_not_found_and_removing_it_twice_is_allowed() -> None:
    index = index_of("A boat", "Another boat", "A train")
    index.extend([document(3, "A ferry"), document(3, "A tram")])
    assert (numbers(index, "train ferry"), numbers(index, "tram"), len(index)) == ([], [3], 3), "the last one stays"
    index.remove(1)
    index.remove(1)
    assert (numbers(index, "boat"), len(index)) == ([2], 2)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(index)


def test_words_are_removed_with_their_last_memory() -> None:
    index = index_of("Zanzibar boats " + "x" * 200, "A boat")
    index.remove(1)
    vocabulary = index.vocabulary
    assert set(vocabulary.terms) == {"boat"}
    assert not {"zanzibar", "boats", "x" * 200} & vocabulary.keys()
    assert not any("zan" in stem or "xx" in stem for stem in vocabulary.stems)
    assert vocabulary.long_letters == 0
    index.remove(2)
    assert index.bytes_used == Index("english").bytes_used


def test_a_search_adds_no_words() -> None:
    index = index_of("A boat")
    before = dict(index.vocabulary)
    numbers(index, 'Zanzibar "zebra" -zeal')
    assert index.vocabulary == before


def test_bytes_used_counts_long_words() -> None:
    index = index_of("A boat")
    before = index.bytes_used
    index.extend([document(2, "x" * 100_000)])
    assert index.bytes_used > before + 100_000


def test_bytes_used_counts_tags() -> None:
    index, tags = index_of("A boat"), tuple(f"{n}{'x' * 50}" for n in range(100))
    before = index.bytes_used
    index.extend([document(2, "A boat", tags=tags), document(3, "A boat", tags=tags)])
    assert index.bytes_used > before + 2 * 100 * (49 + 50)
    index.remove(2)
    index.remove(3)
    assert index.bytes_used < before + 100 * 500, "the words of tags are forgotten, and so are the tags"


def test_a_few_long_memories_are_indexed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[int]] = []
    monkeypatch.setattr(Index, "_add", lambda _, batch: batches.append(list(batch)))
    Index("english").extend(document(n, "x" * 100_000) for n in range(12))
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]


def test_a_sign_that_becomes_many_letters_makes_no_text_much_longer() -> None:
    assert (len(words.nfkc("\ufdfa" * 1_000)), words.nfkc("\ufdfa tea")[-4:]) == (4_100, " tea")


def test_phrases_that_take_too_long_to_compare_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of("red car", "漢字 car")
    monkeypatch.setattr(selection, "MOST_SECONDS", -1)
    for query in ('"red car"', 'car -"red car"', '"漢 car"', '"漢" "字"'):
        with pytest.raises(SlowSearch):
            numbers(index, query)
    assert numbers(index, "red car") == [1, 2]


def test_a_search_for_the_words_of_a_phrase_has_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    index, search, ends = index_of("red car", "blue boat"), Index.search, []

    def searched(self: Index, query: Any, *given: Any, **more: Any) -> Any:
        ends.append(query.until)
        return search(self, query, *given, **more)

    monkeypatch.setattr(Index, "search", searched)
    began = time.thread_time()
    assert [hit.number for hit in lineages.find(index, '"car red"', EVERYTHING, seconds=7, limit=9)] == [1]
    assert (len(ends), len(set(ends))) == (2, 1)
    assert began + 7 <= ends[0] <= time.thread_time() + 7
    for query in ('"red car"', "car -tag:x"):
        with pytest.raises(SlowSearch):
            lineages.find(index, query, EVERYTHING, seconds=-1, limit=9)


def test_a_long_series_of_combining_marks_is_cut_before_it_is_normalized() -> None:
    """The time of the normalization grows with the square of its length: 10,000 marks take half a second."""
    hostile = "\u0344" * 5_000 + "\u0327" * 5_000
    assert len(words.nfkc(f"tea{hostile}, {hostile}")) < 200
    assert words.nfkc("e\u0301" * 100) == "\u00e9" * 100


def test_nearness_looks_at_few_places_and_at_a_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 forms of two words took nine seconds in 50 long memories."""
    index, looked = index_of("connect adopt " * 2_000), []
    monkeypatch.setattr(ranking, "_gap", lambda one, other: looked.append(len(one) + len(other)) or 1)
    assert numbers(index, "connect adopt connects adopts connected adopted") == [1]
    assert looked == [200]


def test_many_stop_words_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was looked for in all memories: 64 of them took six seconds in 5,700 long memories."""
    texts = [*(f"{word} tea" for word in ("the", "of", "a", "and")), "milk"]
    index, passes = index_of(*texts), []
    with monkeypatch.context() as patch:
        patch.setattr(holdings, "holds_run", lambda *_: passes.append(1))
        assert numbers(index, "the of a an and or but if then so") == [1, 2, 3, 4]
        patch.setattr(holdings, "in_time", lambda items, *_: passes.extend(items) or ())
        assert numbers(index, "milk") == [5], "without a stop word, nothing is looked for"
    assert passes == []
    assert (numbers(index, "the"), numbers(index, '"the" "a"'), numbers(index, "tea -the -of")) == ([1], [], [3, 4])
    monkeypatch.setattr(selection, "MOST_SECONDS", -1)
    with pytest.raises(SlowSearch):
        numbers(index, '"the"')
    found = [lineages.find(index, each, EVERYTHING, seconds=-1) for each in ("the of a and", "the", "tea milk")]
    assert [[hit.number for hit in hits] for hits in found] == [[], [], [5]]


def test_characters_that_can_mean_many_terms_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 characters that began two million terms made a search take minutes."""
    heads = [chr(0x4E00 + n) for n in range(64)]
    index, ranked = index_of(*["".join(head + chr(0x5000 + n) for n in range(400)) for head in heads]), []
    best = Index._best
    monkeypatch.setattr(Index, "_best", lambda self, *rest: ranked.append(len(rest[0].scales)) or best(self, *rest))
    assert (len(numbers(index, " ".join(heads), limit=64)), numbers(index, heads[0])) == (50, [1])
    assert ranked == [MOST_WORK // 51, 400]
    usual = index_of(*["漢字"] * 30, "漢文")
    assert numbers(usual, "漢", limit=40) == [31, *range(1, 31)]
    monkeypatch.setattr("memory.search.index.MOST_WORK", 100)
    assert numbers(usual, "漢", limit=40) == [31], "the rarest terms count"
