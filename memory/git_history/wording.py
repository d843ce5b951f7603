"""How an analysis words its figures and names: on lines that can be read without scrolling."""

from __future__ import annotations

import textwrap

_WIDTH = 120  # characters of a line
_LONGEST = 160  # characters of anything that is not ours


def folded(text: str) -> str:
    """With lines that can be read without scrolling: what is too long goes on below, as part of its item."""
    return "\n".join(
        textwrap.fill(
            line,
            _WIDTH,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def one_line(text: str) -> str:
    """On one line, no longer than is needed to know it by."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


def of_path(path: str) -> str:
    return one_line(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def several(many: float, what: str) -> str:
    number = f"{many:,}" if isinstance(many, int) else f"{many:g}"
    return f"{number} {what}" if many == 1 else f"{number} {what}s"


def last_days(days: int) -> str:
    return "the last day" if days == 1 else f"the last {days:,} days"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"
