"""Text that is put right, and parted where it is too long."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.policy.validation import checked_content
from memory.transfer.formats.parts import Names, Unfit, decoded, fit, pieces

BITS = [
    *("# A\n", "## B\n", "### A\n", "```\n", "~~~\n", "\n", "\n\n", " " * 90, "word " * 700, "x" * 4_000, "。" * 3_000),
    *("One. Two! " * 300, "line\n" * 900, "  # odd ##\n", "#no\n", "\t", "\N{DUCK}" * 2_500, "#\n", "\u2028", "\x1c"),
]
long = st.lists(st.sampled_from(BITS), max_size=30).map("".join)


def parts(text: str) -> list[tuple[str, str]]:
    return list(pieces(text))


def _unblanked(text: str) -> str:
    return "".join(text.split())


@given(long)
@example("# only\n" * 4_000)
@example("\n" + " " * 20_000 + "x")
def test_nothing_is_lost_and_nothing_is_too_long(text: str) -> None:
    found = parts(text)
    assert _unblanked("".join(content for _, content in found)) == _unblanked(text)
    assert [checked_content(content) for _, content in found] == [content for _, content in found]
    assert len({suffix for suffix, _ in found}) == len(found)


@given(long)
def test_a_part_is_not_parted_again(text: str) -> None:
    for _, content in parts(text):
        assert parts(content) == [("", content)]


def test_what_fits_is_one_part_without_a_name() -> None:
    assert parts("# A\n\n# B\n") == [("", "# A\n\n# B")]
    assert parts(" \n\n") == []


@pytest.mark.parametrize("between", ["\n\n", ". ", "\n", " "])
def test_text_is_parted_between_paragraphs_sentences_lines_or_words(between: str) -> None:
    text = ("x" * 5_990 + between) * 3
    assert [len(content) for _, content in parts(text)] == [5_990 + (between == ". ")] * 3


def test_a_heading_without_words_has_a_number() -> None:
    text = f"# !\n{'x ' * 4_000}\n# ?\n{'x ' * 4_000}\n# a\n{'x ' * 4_000}"
    assert [suffix for suffix, _ in parts(text)] == ["", "2", "a"]


def test_code_within_a_line_is_no_fence() -> None:
    text = f"```x```\n# A\n{'x ' * 4_000}\n# B\n{'x ' * 4_000}"
    assert [suffix for suffix, _ in parts(text)] == ["", "b"]


def test_a_short_section_goes_with_the_next_and_the_last_with_the_one_before() -> None:
    long = "x " * 3_000
    text = f"# Title\n\n## A\n{long}\n## B\nshort\n## C\n{long}\n## D\nlast\n"
    assert [(suffix, "D" in content) for suffix, content in parts(text)] == [("title", False), ("b", True)]
    concluded = f"## A\n{long}\n## B\n{'y ' * 1_000}\n## Conclusion\n{'z ' * 1_000}"
    assert [(suffix, "Conclusion" in content) for suffix, content in parts(concluded)] == [("a", False), ("b", True)]


def test_a_title_alone_is_no_part() -> None:
    text = f"# Title\n\n## A\n{'x ' * 4_996}\n## B\n{'y ' * 4_996}"
    assert all("x" in content or "y" in content for _, content in parts(text))


@pytest.mark.parametrize(
    "hostile", ["# a\n", "\n", "#", "`", "```\n", " ", "a" * 9 + " ", "\u0301", ".", "# a-2\n# a\n", "# \u0301\u0316"]
)
def test_a_megabyte_is_parted_in_seconds(hostile: str) -> None:
    text = hostile * (2**20 // len(hostile.encode()))
    began = time.process_time()
    parts(text)
    assert time.process_time() - began < 10


def test_names_are_given_once() -> None:
    names = Names()
    found = [names.name(name) for name in ["a", "a", "a-2", "a", "", "", "2", ""]]
    assert found == ["a", "a-2", "a-2-2", "a-3", "", "2", "2-2", "3"]


# --- text


def test_a_mark_and_line_ends_are_put_right_and_told() -> None:
    found = decoded(b"\xef\xbb\xbf\r\n \r\n  a\r\n\rb \r\n\n")
    assert (found.text, found.transformed) == ("  a\n\nb", ("byte order mark left out", "line ends made LF"))
    assert decoded(b"a").transformed == ()


def test_what_is_no_text_is_told() -> None:
    for data, why in (
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n", "is empty"),
        (b"a\0", "contains a NUL character"),
        (b"\xff\xfea\0", "is not UTF-8 text"),
        (b"\xed\xa0\xbd", "is not UTF-8 text"),
    ):
        with pytest.raises(Unfit) as told:
            decoded(data)
        assert (told.value.why, told.value.__context__) == (why, None)
    for value, why in ((7, "has no text"), (" \n", "has no text"), ("a\0", "contains a NUL character")):
        with pytest.raises(Unfit, match=why):
            fit(value)
    with pytest.raises(Unfit, match="contains an incomplete character"):
        fit("\ud83d")
