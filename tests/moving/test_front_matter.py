"""YAML front matter, as tools write it and as an attacker can."""

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


@given(st.text(max_size=200), st.lists(st.text("ab{}'\" [],\\", max_size=8), max_size=5).map(",".join))
def test_any_text_is_read_or_refused(text: str, items: str) -> None:
    for each in as_list(items):
        assert each == each.strip() != ""
    try:
        found, _ = split_front_matter(f"---\n{text}\n---\n")
    except Unreadable:
        return
    assert all(isinstance(value, str | tuple) for value in found.values())


def test_a_value_is_a_text_or_a_list() -> None:
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
        "a: !!python/object/apply:os.getcwd []": "!!python/object/apply:os.getcwd []",  # no object is made
    }
    assert {line: fields(line)["a"] for line in values} == values
    assert fields("a: [!!python/name:os.getcwd '']")["a"] in ((), ("",))
    lines = ("a:", "  - 'b, c' # d", "  - *.e", "f:", "  g: h", "j: >-", "  k", "  l")
    assert fields(*lines) == {"a": ("b, c", "*.e"), "f.g": "h", "j": "k l"}
    assert as_list("src/**/*.{ts,tsx}, 'b',\"c\"") == ["src/**/*.{ts,tsx}", "b", "c"]


def test_unreadable_front_matter_is_refused_without_its_words() -> None:
    lists = ["a: [b"], ["a: [" + "[" * 5_000], ["a: &x [1]", "b: [*x, *x]"], ["? [a]", ": b"]
    for lines in (*lists, ["a"], ["- a"], ["a: 'open"], ["a: \x00"], ["a: " + "b" * MAX_LENGTH]):
        with pytest.raises(Unreadable) as refused:
            fields(*lines)
        assert (str(refused.value), refused.value.__context__) == ("", None)
    with pytest.raises(Unreadable):
        split_front_matter("---\na: b\n")


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
