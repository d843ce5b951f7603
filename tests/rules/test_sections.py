"""A structured memory is one text, whose sections are found again whatever stands in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.rules import sections
from memory.rules.categories import SCOPES

LINES = st.lists(
    st.sampled_from(
        ["## Context", "## Understanding ", "\\## Outcome", "\\\\## Tags", "# top", "words", "", "  x", "##"]
    ),
    min_size=1,
).map("\n".join)


@given(st.dictionaries(st.sampled_from(sections.names("technical")), LINES.filter(str.strip)))
def test_sections_are_found_again(given_: dict[str, str]) -> None:
    text = sections.composed(given_)
    assert sections.parted(text, "technical") == {name: value.strip() for name, value in given_.items()}


def test_plain_text_is_the_main_section() -> None:
    assert sections.parted("The ferry leaves at 14:30.\n", "technical") == {
        "Understanding": "The ferry leaves at 14:30."
    }
    assert sections.parted("The ferry.", "session") == {"Session Overview": "The ferry."}


def test_what_stands_before_the_first_heading_is_the_main_sections() -> None:
    told = sections.parted("Why.\n## Outcome\nGood.", "behavioral")
    assert told == {"Understanding": "Why.", "Outcome": "Good."}


def test_every_category_has_its_main_section() -> None:
    assert all(sections.main_section(category) in sections.names(category) for category in SCOPES)
