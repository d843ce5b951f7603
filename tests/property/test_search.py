"""Search with any text: it raises nothing, meets its rules, and does not depend on the history of the index."""

from datetime import UTC, datetime, timedelta
from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from memory.search.holdings import Document
from memory.search.index import Hit, Index
from memory.search.query import Query
from memory.search.selection import Filters

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = ("core", "constitutional")
# Few words in many forms, so that queries match documents.
WORDS = [
    *("paint", "painting", "painter", "the", "to", "red", "réd"),
    *("car", "cars", "猫", "黒猫が", "東京", "x1", "Ünder"),
]

any_text = st.text(st.characters(), max_size=200)  # also surrogates and NUL
some_words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
operators = st.sampled_from(['"', " ", "-", "tag:", "(", "\0", "\ud800"])
mixtures = st.lists(st.one_of(operators, st.sampled_from(WORDS)), max_size=15).map("".join)
queries = st.one_of(any_text, some_words, mixtures)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    return Document(
        draw(st.integers(0, 12)),
        draw(st.one_of(some_words, any_text)),
        tuple(draw(st.lists(st.sampled_from(["Red", "car park", "猫"]), max_size=2))),
        BEGINNING + timedelta(days=draw(st.integers(0, 5))),
        draw(st.sampled_from(KINDS)),
        *("", ""),
    )


def index_of(sentences: list[list[str]]) -> Index:
    """An index of core memories of these words."""
    return filled({n: Document(n, " ".join(words), (), BEGINNING, "core", "", "") for n, words in enumerate(sentences)})


def filled(held: dict[int, Document]) -> Index:
    index = Index("english")
    index.extend(held[number] for number in sorted(held))
    return index


@given(st.lists(documents(), max_size=10), queries)
def test_no_query_raises(added: list[Document], query: str) -> None:
    index = Index("english")
    index.extend(added)
    hits = index.search(query, limit=20)
    assert all(hit.number in index.by_number for hit in hits)
    assert len({hit.number for hit in hits}) == len(hits)


@given(st.lists(st.one_of(documents(), st.integers(0, 12)), max_size=30), st.lists(queries, min_size=1, max_size=5))
def test_results_do_not_depend_on_the_order_of_changes(changes: list[Document | int], searches: list[str]) -> None:
    index, held = Index("english"), dict[int, Document]()
    for change in changes:
        if isinstance(change, Document):
            index.extend([change])
            held[change.number] = change
        else:
            index.remove(change)
            held.pop(change, None)
    fresh = filled(held)
    assert len(index) == len(fresh)
    assert [index.search(query) for query in searches] == [fresh.search(query) for query in searches]
    assert index.vocabulary.terms.keys() == fresh.vocabulary.terms.keys()


plain = st.lists(st.sampled_from(["alpha", "beta", "gamma", "of", "the"]), min_size=1, max_size=3)
sentences = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "of", "the"]), max_size=10)


def holds(sentence: list[str], phrase: list[str]) -> bool:
    return any(sentence[place : place + len(phrase)] == phrase for place in range(len(sentence)))


@given(st.lists(sentences, max_size=12), plain, plain)
def test_hits_hold_the_phrase_and_not_the_excluded(
    texts: list[list[str]], phrase: list[str], without: list[str]
) -> None:
    query = f'"{" ".join(phrase)}" -"{" ".join(without)}"'
    found = {hit.number for hit in index_of(texts).search(query, limit=100)}
    assert found == {n for n, words in enumerate(texts) if holds(words, phrase) and not holds(words, without)}


@given(st.lists(sentences, min_size=1, max_size=80), plain, st.integers(1, 8))
def test_a_limit_keeps_the_first_hits(texts: list[list[str]], words: list[str], limit: int) -> None:
    index = index_of(texts)
    every: list[Hit] = index.search(" ".join(words), limit=1_000)
    assert index.search(" ".join(words), limit=limit) == every[:limit]
    assert all(hit.score > 0 for hit in every)


@given(st.integers(0, 10**6), plain, st.sampled_from([1, 30, 90, 99]), st.sampled_from([5, 60]))
def test_filters_find_the_best_of_what_they_allow(seed: int, words: list[str], excluded: int, limit: int) -> None:
    """The short and the long way give the same, for any share of excluded documents (per cent)."""
    random = Random(seed)
    vocabulary = ["alpha", "beta", "gamma", "delta", "eta", "of"]
    index = Index("english")
    for number in range(1_200):
        text = " ".join(random.choices(vocabulary, k=random.randint(1, 9)))
        category = "private" if random.randrange(100) < excluded else ""
        index.extend([Document(number, text, (), BEGINNING, "core", category, "")])
    query, filters = " ".join(words), Filters(without=frozenset({"private"}))
    found = index.search(query, filters, limit=limit)
    with patch.object(Query, "restricts", True):
        assert index.search(query, filters, limit=limit) == found
