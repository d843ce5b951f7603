"""YAML front matter, as tools write it and as strangers may."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.transfer.formats.pages import MAX_LENGTH, Unreadable, Value, as_list, split_front_matter


def fields(*lines: str) -> dict[str, Value]:
    found, body = split_front_matter("\n".join(["---", *lines, "---", "body"]))
    assert body.strip() == "body"
    return dict(found)


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    try:
        found, _ = split_front_matter(f"---\n{text}\n---\n")
    except Unreadable:
        return
    assert all(isinstance(value, str | tuple) for value in found.values())


@given(st.lists(st.text("ab{}'\" [],\\", max_size=8), max_size=5).map(",".join))
def test_no_list_breaks_it(text: str) -> None:
    for each in as_list(text):
        assert each == each.strip() != ""


def test_a_value_is_text_or_a_list() -> None:
    values: dict[str, Value] = {
        "a: b": "b",
        "a: true": "true",
        "a: 2026-01-02": "2026-01-02",
        "a: 'it''s' # d": "it's",
        "a:": "",
        "a: []": (),
        "a: [b, 'c, d'] # g": ("b", "c, d"),
        "a: **/*.ts": "**/*.ts",
        "a: {b,c}/**": "{b,c}/**",
        'a: "b", "c"': '"b", "c"',
        "a: Use it: always": "Use it: always",
    }
    assert {line: fields(line)["a"] for line in values} == values


def test_lists_texts_and_keys_below_keys() -> None:
    assert fields("a:", "  - 'b, c' # d", "  - *.e", "f:", "  g: h", "j: >-", "  k", "  l") == {
        "a": ("b, c", "*.e"),
        "f.g": "h",
        "j": "k l",
    }


def test_a_comma_in_braces_separates_nothing() -> None:
    assert as_list("src/**/*.{ts,tsx}, 'b',\"c\"") == ["src/**/*.{ts,tsx}", "b", "c"]


def test_what_is_none_is_refused_without_its_words() -> None:
    lists = ["a: [b"], ["a: [" + "[" * 5_000], ["a: &x [1]", "b: [*x, *x]"], ["? [a]", ": b"]
    for lines in (*lists, ["a"], ["- a"], ["a: 'open"], ["a: \x00"], ["a: " + "b" * MAX_LENGTH]):
        with pytest.raises(Unreadable) as refused:
            fields(*lines)
        assert (str(refused.value), refused.value.__context__) == ("", None)
    with pytest.raises(Unreadable):  # without an end
        split_front_matter("---\na: b\n")


def test_a_tag_makes_no_object() -> None:
    assert fields("a: !!python/object/apply:os.getcwd []") == {"a": "!!python/object/apply:os.getcwd []"}
    assert fields("a: [!!python/name:os.getcwd '']")["a"] in ((), ("",))


@pytest.mark.parametrize("line", ["a: [{}", "a: {}", "{}"])
@pytest.mark.parametrize("hostile", ["[", "'", "\\", ",", " #", "- a\n", ": "])
def test_a_megabyte_is_read_in_seconds(line: str, hostile: str) -> None:
    text = "---\n" + line.replace("{}", hostile * (2**20 // len(hostile))) + "\n---\nbody"
    began = time.process_time()
    for size in (len(text), MAX_LENGTH - 100):
        try:
            for value in split_front_matter(f"{text[:size]}\n---\nbody")[0].values():
                as_list(value)
        except Unreadable:
            pass
    assert time.process_time() - began < 5
