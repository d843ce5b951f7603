"""Structured memories: the sections of a text can be read back, whatever the sections contain."""

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from memory.markdown.sections import escaped, join, main_section, names, split, unescaped
from memory.policy.categories import SCOPES
from memory.recording.interactions import fenced

HOSTILE = ["## Context", "## Understanding ", "\\## Outcome", "\\\\## Tags", "# top", "words", "", "  x", "##"]
HOSTILE += ["```", "```py", "````", "~~~", "~~~~ x", "   ```", "    ```", "\\```", "\\\\~~~", "``` `a`", "```\r"]
LINES = st.lists(st.sampled_from(HOSTILE), min_size=1).map("\n".join)


@given(st.dictionaries(st.sampled_from(names("technical")), LINES.filter(str.strip)))
def test_sections_are_read_back(parts: dict[str, str]) -> None:
    assert split(join(parts), "technical") == {name: text.strip() for name, text in parts.items()}


@given(LINES.filter(str.strip), st.sampled_from(names("technical")))
def test_a_heading_in_a_fence_starts_no_section(text: str, name: str) -> None:
    parts = {"User Prompt": fenced(text), "Agent Response": fenced(f"## {name}"), "Context": "- Session: x"}
    joined = join(parts)
    assert f"\n## {name}\n" in joined  # without a backslash
    assert split(joined, "user_interaction") == parts


def test_a_fence_that_is_not_closed_ends_with_its_section() -> None:
    found = split("Why.\n```\ncode\n## Outcome\nGood.", "technical")
    assert found == {"Understanding": "Why.\n```\ncode", "Outcome": "Good."}
    both = {"Context": "```\nhalf", "Outcome": "```\nanother"}
    assert split(join(both), "technical") == both


def test_escaped_headings_in_a_fence_are_unescaped() -> None:
    text = "## User Prompt\n```\n\\## Context\nplease\n\\\\## Task\n```\n\n## Context\n- Session: x"
    expected = {"User Prompt": "```\n## Context\nplease\n\\\\## Task\n```", "Context": "- Session: x"}
    assert split(text, "user_interaction") == expected


def test_many_open_fences_take_little_time() -> None:
    lines = "".join(f"{'`' * (3 + number % 900)}x\n" for number in range(3_000))
    begun = perf_counter()
    assert unescaped(escaped(lines)) == lines
    assert perf_counter() - begun < 2


def test_text_before_the_first_heading_belongs_to_the_main_section() -> None:
    assert split("The ferry leaves at 14:30.\n", "technical") == {"Understanding": "The ferry leaves at 14:30."}
    assert split("The ferry.", "session") == {"Session Overview": "The ferry."}
    assert split("Why.\n## Outcome\nGood.", "behavioral") == {"Understanding": "Why.", "Outcome": "Good."}
    assert all(main_section(category) in names(category) for category in SCOPES)
