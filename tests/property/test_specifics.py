"""What holds for every text: nothing is missing from itself, joining keeps all, comparing has no direction."""

from hypothesis import given
from hypothesis import strategies as st

from refinement.specifics import differ, extract, missing


def words(text: str) -> list[str]:
    return text.split()


_WORDS = [
    *words("the a and of to in is was not never without one first two fifty 3 40 1,000 25 % € kg euros km days ago"),
    *words("May march 7 2023 2023-05-07 05/07/2023 Monday yesterday last week 3pm 15:00 noon Ana Ben Ana's Petrova"),
    *words("likes dislikes before after doesn't eats meat NASA APIs J. K. foo_bar --dry-run v1.2.3 /etc/x a@b.org"),
    *words("https://x.org/a I Plan B (Oslo) re-run half an hour o'clock - : ; , ."),
    *('"so it is"', "“no way”", "'yes'", "`code x`"),  # whole: a quote left open would reach into the next sentence
]
sentences = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=14).map(lambda chosen: " ".join(chosen) + ".")
texts = st.one_of(st.text(max_size=200), sentences, st.lists(sentences, max_size=4).map(" ".join))


@given(texts)
def test_nothing_is_missing_from_the_text_itself(text: str) -> None:
    assert missing([text], text) == []


@given(sentences, sentences)
def test_joining_sentences_keeps_everything(one: str, other: str) -> None:
    assert missing([one, other], f"{one} {other}") == []


@given(texts)
def test_naming_everything_drops_everything(text: str) -> None:
    lost = missing([text], "")
    assert missing([text], "", dropping=[one.text for one in lost]) == []


@given(texts)
def test_specifics_are_written_in_the_text(text: str) -> None:
    assert all(one.text and one.key for one in extract(text))


@given(texts, texts)
def test_differing_has_no_direction(one: str, other: str) -> None:
    assert differ(one, other) == differ(other, one)


@given(texts)
def test_no_text_differs_from_itself_or_from_its_copy(text: str) -> None:
    assert not differ(text, text)
    assert not differ(text, f"{text} ")
