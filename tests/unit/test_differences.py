"""The difference of two texts: its pieces build both texts, and the time is bounded."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.admin.plain_pages.reading import Piece, pieces

TEXT = st.text(max_size=300) | st.text("ab \n", max_size=2_000)


def joined(found: list[Piece], *kinds: str) -> str:
    return "".join(piece.text for piece in found if piece.kind in kinds)


@given(TEXT, TEXT)
def test_the_pieces_build_both_texts(before: str, after: str) -> None:
    found = pieces(before, after)
    assert (joined(found, "same", "removed"), joined(found, "same", "added")) == (before, after)


def test_a_changed_word_is_a_piece_and_long_texts_are_compared_by_lines() -> None:
    changed = [Piece("same", "drinks "), Piece("removed", "tea"), Piece("added", "coffee"), Piece("same", " daily")]
    assert pieces("drinks tea daily", "drinks coffee daily") == changed
    assert (pieces("", ""), pieces("", "tea")) == ([], [Piece("added", "tea")])
    assert pieces("tea", "") == [Piece("removed", "tea")]
    before = "\n".join(f"{line} is a line of some words, which stay" for line in range(200))
    found = pieces(before, before.replace("100 is", "100 was"))
    assert [piece.kind for piece in found] == ["same", "removed", "added", "same"]
    assert found[1].text == "100 is a line of some words, which stay\n"


HOSTILE = [
    ("a " * 5_000, "b " * 5_000),
    ("a" * 10_000, "." * 10_000),
    ("." * 499, "." * 250 + "," + "." * 249),
    tuple("".join(chr(0x4E00 + sign * (n % 100)) + " " for n in range(249)) for sign in (1, -1)),
    ("b.a." * 314, "." * 199),
    ("\n".join("ab"[n % 2] for n in range(5_000)), "\n".join("ba"[n % 3 > 1] for n in range(5_000))),
]


def test_a_page_shows_texts_whole_after_its_time() -> None:
    assert pieces("drinks tea", "drinks coffee", 0) == [Piece("removed", "drinks tea"), Piece("added", "drinks coffee")]


@pytest.mark.parametrize("texts", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_take_less_than_half_a_second(texts: tuple[str, str]) -> None:
    began = time.process_time()
    found = pieces(*texts)
    assert time.process_time() - began < 0.5
    assert joined(found, "same", "added") == texts[1]
