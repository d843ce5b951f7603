"""A structured memory is one text, whose sections are found again whatever stands in them."""

from __future__ import annotations

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from memory.markdown import sections
from memory.policy.categories import SCOPES
from memory.recording.interactions import fenced

LINES = st.lists(
    st.sampled_from(
        [
            *("## Context", "## Understanding ", "\\## Outcome", "\\\\## Tags", "# top", "words", "", "  x", "##"),
            *("```", "```py", "````", "~~~", "~~~~ x", "   ```", "    ```", "\\```", "\\\\~~~", "``` `a`", "```\r"),
        ]
    ),
    min_size=1,
).map("\n".join)


@given(st.dictionaries(st.sampled_from(sections.names("technical")), LINES.filter(str.strip)))
def test_sections_are_found_again(given_: dict[str, str]) -> None:
    text = sections.join(given_)
    assert sections.split(text, "technical") == {name: value.strip() for name, value in given_.items()}


@given(LINES.filter(str.strip), st.sampled_from(sections.names("technical")))
def test_what_a_fence_holds_is_no_heading_and_stays_as_it_is(text: str, name: str) -> None:
    prompt = fenced(text)
    composed = sections.join({"User Prompt": prompt, "Agent Response": fenced(f"## {name}"), "Context": "- Session: x"})
    assert f"\n## {name}\n" in composed  # without a backslash
    assert sections.split(composed, "user_interaction") == {
        "User Prompt": prompt,
        "Agent Response": fenced(f"## {name}"),
        "Context": "- Session: x",
    }


def test_a_fence_that_nothing_closes_swallows_nothing() -> None:
    assert sections.split("Why.\n```\ncode\n## Outcome\nGood.", "technical") == {
        "Understanding": "Why.\n```\ncode",
        "Outcome": "Good.",
    }
    both = {"Context": "```\nhalf", "Outcome": "```\nanother"}
    assert sections.split(sections.join(both), "technical") == both


def test_what_was_escaped_within_a_fence_is_read_as_it_was_said() -> None:
    before = "## User Prompt\n```\n\\## Context\nplease\n\\\\## Task\n```\n\n## Context\n- Session: x"
    told = sections.split(before, "user_interaction")
    assert told == {"User Prompt": "```\n## Context\nplease\n\\\\## Task\n```", "Context": "- Session: x"}


def test_many_fences_that_nothing_closes_take_no_time() -> None:
    lines = "".join(f"{'`' * (3 + number % 900)}x\n" for number in range(3_000))
    begun = perf_counter()
    assert sections.unescaped(sections.escaped(lines)) == lines
    assert perf_counter() - begun < 2


def test_plain_text_is_the_main_section() -> None:
    assert sections.split("The ferry leaves at 14:30.\n", "technical") == {
        "Understanding": "The ferry leaves at 14:30."
    }
    assert sections.split("The ferry.", "session") == {"Session Overview": "The ferry."}


def test_what_stands_before_the_first_heading_is_the_main_sections() -> None:
    told = sections.split("Why.\n## Outcome\nGood.", "behavioral")
    assert told == {"Understanding": "Why.", "Outcome": "Good."}


def test_every_category_has_its_main_section() -> None:
    assert all(sections.main_section(category) in sections.names(category) for category in SCOPES)
