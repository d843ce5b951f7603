"""The lines between two `---` at the top of a file."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.transfer.front_matter import Unreadable, Value, parted, split

LINES = [
    "---",
    "a: b",
    "globs: [a, 'b']",
    "globs:",
    "  - c",
    "- d # e",
    "x: |",
    "  y",
    "# z",
    "",
    "no key",
    "m:",
    "  n: o",
]
LINES += ["q: 'it''s'", 'r: "a\\"b" # c', "s: [", "  t,", "]", "u: &a [1]", "v: *a", "\t", "w:x", "- ", "é: b", "---  "]


def fields(*lines: str) -> dict[str, Value]:
    found = parted("\n".join(["---", *lines, "---", "body"]))
    assert found.body == "body"
    return dict(found.fields or {})


@given(st.lists(st.sampled_from(LINES), max_size=20).map("\n".join))
def test_what_is_read_is_all_or_nothing(text: str) -> None:
    """Either the text stays as it is, or what stands behind the second line is the body."""
    try:
        found = parted(text)
    except Unreadable:
        return
    assert text.endswith(found.body)
    if found.fields is None:
        assert found.body == text
    else:
        assert text.startswith("---")
        assert text.removesuffix(found.body).rstrip("\n").rstrip().endswith("---")


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    for front in (text, f"---\n{text}\n---\n"):
        try:
            parted(front)
        except Unreadable:
            continue


@given(st.lists(st.text("ab{}'\" [],\\", max_size=8), max_size=5).map(",".join))
def test_no_list_breaks_it(text: str) -> None:
    for each in split(text):
        assert each == each.strip() != ""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a: b: c", "b: c"),
        ("a: 'it''s' # d", "it's"),
        ('a: "say \\"b\\""', 'say "b"'),
        ('a: "b", "c"', '"b", "c"'),
        ("a: #12", ""),
        ("a: fix #12", "fix #12"),
        ("a: 'open", "'open"),
        ("a:", ""),
        ("a: []", ()),
        ("a: [b, 'c, d', {e,f}] # g", ("b", "c, d", "{e,f}")),
        ("a: *b", "*b"),
    ],
)
def test_a_value_is_text_or_a_list(line: str, value: Value) -> None:
    assert fields(line) == {"a": value}


def test_lists_texts_and_keys_below_keys() -> None:
    assert fields(
        "a:", "  - 'b, c' # d", "- e", "", "f:", "  g: h", "  i:", "j: >-", "  k", "  l", "m: |", "  n", "  o"
    ) == {
        "a": ("b, c", "e"),
        "f": "",
        "f.g": "h",
        "f.i": "",
        "j": "k l",
        "m": "n\no",
    }
    assert fields("a: [b,", "  'c' , # d", "  e ] # f") == {"a": ("b", "c", "e")}


@pytest.mark.parametrize(
    "lines", [["a"], ["a:b"], ["a: b", "a: c"], ["  - a"], ["a: b", "  c"], ["a: [b", "c: d"], ["a: [b"], ["é: b"]]
)
def test_what_is_none_is_refused(lines: list[str]) -> None:
    with pytest.raises(Unreadable):
        fields(*lines)


def test_without_an_end_it_is_none() -> None:
    with pytest.raises(Unreadable):
        parted("---\na: b\n")
    assert parted("--- \n---\t\nb").fields == {}
    assert parted("----\na: b\n---\n").fields is None
    assert parted("text\n---\na: b\n---\n").fields is None


@pytest.mark.parametrize("line", ["a: [{}", "a: {}", "a: |\n {}", "- {}", "{}: b", "a: '{}", "{}"])
@pytest.mark.parametrize("hostile", ["[", "'", '"', "\\", ",", " #", "{", "a\n", "]\n", "- a\n", ": ", "'a"])
def test_a_megabyte_is_read_in_seconds(line: str, hostile: str) -> None:
    text = "---\n" + line.replace("{}", hostile * (2**20 // len(hostile))) + "\n---\nbody"
    began = time.process_time()
    try:
        for value in (parted(text).fields or {}).values():
            list(split(value))
    except Unreadable:
        pass
    assert time.process_time() - began < 10
