"""What cannot be seen is seen in files, and read again; tags that hold commas; titles that say what is known."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from memory.silo.silo import Opened
from memory.vault import rendering
from memory.vault.rendering import restored, visible
from tests.vault.test_hostile import DAY, OPEN, memory

TURNED = "gnp\u202e.exe\x1b[31m\x9b\x07\u2066\rx"
ODD = st.lists(st.sampled_from(["\\", "u{202E}", "u{1B}", "u{1b}", "u{41}", "\u202e", "\x1b", "\r", "\n", "a", ","]))
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


def file_of(content: str, *tags: str, category: str = "technical") -> bytes:
    return rendering.render(memory(category), Opened(content, tags), "1.0.0", DAY)


@given(ODD.map("".join))
def test_any_text_is_seen_and_read_again(text: str) -> None:
    assert restored(visible(text)) == text
    assert not UNSEEN.search(visible(text))


def test_no_more_is_changed_than_has_to_be() -> None:
    rows = [
        ("a\u202eb", "a\\u{202E}b"),
        ("a\\u{202E}b", "a\\\\u{202E}b"),
        ("a\\\u202eb", "a\\\\\\u{202E}b"),
        ("u{202E}", "u{202E}"),
        ("\\u{41} \\u{1b} C:\\users", "\\u{41} \\u{1b} C:\\users"),
        ("one\r\ntwo\tthree", "one\r\ntwo\tthree"),
        ("שלום\u200f عربي 🧑\u200d🚀", "שלום\u200f عربي 🧑\u200d🚀"),
    ]
    assert [visible(text) for text, _ in rows] == [told for _, told in rows]


def test_long_runs_take_no_time() -> None:
    began = time.perf_counter()
    visible("\\" * 200_000)
    restored("\\" * 200_000)
    rendering.tags_of("\\" * 200_000)
    assert time.perf_counter() - began < 2


def test_no_file_commands_a_terminal() -> None:
    said, tags = f"- Topic: {TURNED}\n- Session: {TURNED}\n", (f"topic:{TURNED}", f"method:{TURNED}")
    for category in OPEN:
        data = file_of(said, *tags, category=category)
        assert not UNSEEN.search(data.decode())
        assert TURNED in "".join(rendering.blocks(data.decode()).values())


@given(st.lists(st.text("a, \\\u202e", min_size=1, max_size=8).map(lambda text: f"x{text}x"), max_size=5))
def test_tags_are_told_apart_whatever_they_hold(tags: list[str]) -> None:
    tags = [" ".join(tag.split()) for tag in tags]
    line = rendering.blocks(file_of("tea", *tags).decode())["Tags"]
    assert rendering.tags_of(line) == tuple(tags)


def test_a_line_of_tags_is_read() -> None:
    lines = {
        "a, b": ("a", "b"),
        "a\\, b": ("a, b",),
        "a\\\\, b": ("a\\", "b"),
        "a\\b\\": ("a\\b\\",),
        "none": (),
        " , a,": ("a",),
    }
    assert {line: rendering.tags_of(line) for line in lines} == lines


def test_a_title_says_what_is_known() -> None:
    for category in OPEN:
        title = file_of("tea", category=category).decode().partition("\n")[0]
        assert "Not recorded" not in title
        assert category in title or "memory 42" in title


def test_what_is_private_has_no_heading_that_holds_nothing() -> None:
    data = rendering.render(memory("personal"), None, "1.0.0", DAY)
    assert b"Migration Notes" not in data
    assert b"where it came from" in data
