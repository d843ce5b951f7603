"""Bytes become text, and text that is too long for one memory is split."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.policy.validation import checked_content
from memory.transfer.formats.parts import Names, Unfit, decoded, fit, pieces
from tests.growth import growth

BITS = [
    *("# A\n", "## B\n", "### A\n", "```\n", "~~~\n", "\n", "\n\n", " " * 90, "word " * 700, "x" * 4_000, "。" * 3_000),
    *("One. Two! " * 300, "line\n" * 900, "  # odd ##\n", "#no\n", "\t", "\N{DUCK}" * 2_500, "#\n", "\u2028", "\x1c"),
]
LONG_TEXTS = st.lists(st.sampled_from(BITS), max_size=30).map("".join)
SECTION = "x " * 4_000


def parts(text: str) -> list[tuple[str, str]]:
    return list(pieces(text))


def suffixes(text: str) -> list[str]:
    return [suffix for suffix, _ in parts(text)]


def without_spaces(text: str) -> str:
    return "".join(text.split())


@given(LONG_TEXTS)
@example("# only\n" * 4_000)
@example("\n" + " " * 20_000 + "x")
def test_parts_are_short_enough_and_lose_no_text(text: str) -> None:
    found = parts(text)
    assert without_spaces("".join(content for _, content in found)) == without_spaces(text)
    assert [checked_content(content) for _, content in found] == [content for _, content in found]
    assert len({suffix for suffix, _ in found}) == len(found)
    for _, content in found:
        assert parts(content) == [("", content)]


def test_a_short_text_is_not_split() -> None:
    assert (parts("# A\n\n# B\n"), parts(" \n\n")) == ([("", "# A\n\n# B")], [])


@pytest.mark.parametrize("between", ["\n\n", ". ", "\n", " "])
def test_text_is_split_between_paragraphs_sentences_lines_or_words(between: str) -> None:
    text = ("x" * 5_990 + between) * 3
    assert [len(content) for _, content in parts(text)] == [5_990 + (between == ". ")] * 3


def test_the_names_of_parts_are_their_headings() -> None:
    assert suffixes(f"# !\n{SECTION}\n# ?\n{SECTION}\n# a\n{SECTION}") == ["", "2", "a"]
    assert suffixes(f"```x```\n# A\n{SECTION}\n# B\n{SECTION}") == ["", "b"]  # code in a line is not a fence
    names = Names()
    given = ["a", "a", "a-2", "a", "", "", "2", ""]
    assert [names.name(name) for name in given] == ["a", "a-2", "a-2-2", "a-3", "", "2", "2-2", "3"]


def test_a_short_section_joins_the_next_and_the_last_section_joins_the_one_before() -> None:
    long = "x " * 3_000
    text = f"# Title\n\n## A\n{long}\n## B\nshort\n## C\n{long}\n## D\nlast\n"
    assert [(suffix, "D" in content) for suffix, content in parts(text)] == [("title", False), ("b", True)]
    text = f"## A\n{long}\n## B\n{'y ' * 1_000}\n## Conclusion\n{'z ' * 1_000}"
    assert [(suffix, "Conclusion" in content) for suffix, content in parts(text)] == [("a", False), ("b", True)]
    text = f"# Title\n\n## A\n{'x ' * 4_996}\n## B\n{'y ' * 4_996}"
    assert all("x" in content or "y" in content for _, content in parts(text))  # a title alone is not a part


@pytest.mark.parametrize(
    "hostile", ["# a\n", "\n", "#", "`", "```\n", " ", "a" * 9 + " ", "\u0301", ".", "# a-2\n# a\n", "# \u0301\u0316"]
)
def test_time_grows_with_the_length_of_the_text(hostile: str) -> None:
    assert growth(lambda size: parts(hostile * (size // len(hostile.encode()))), 2**18) < 10


def test_a_byte_order_mark_and_line_ends_are_corrected() -> None:
    found = decoded(b"\xef\xbb\xbf\r\n \r\n  a\r\n\rb \r\n\n")
    assert (found.text, found.transformed) == ("  a\n\nb", ("byte order mark left out", "line ends made LF"))
    assert decoded(b"a").transformed == ()


def test_bytes_and_values_that_are_not_text_are_refused() -> None:
    for data, why in (
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n", "is empty"),
        (b"a\0", "contains a NUL character"),
        (b"\xff\xfea\0", "is not UTF-8 text"),
        (b"\xed\xa0\xbd", "is not UTF-8 text"),
    ):
        with pytest.raises(Unfit) as refused:
            decoded(data)
        assert (refused.value.why, refused.value.__context__) == (why, None)
    values = {7: "has no text", " \n": "has no text", "a\0": "contains a NUL character"}
    for value, why in (values | {"\ud83d": "contains an incomplete character"}).items():
        with pytest.raises(Unfit, match=why):
            fit(value)
