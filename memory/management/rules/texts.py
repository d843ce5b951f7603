"""Text for a deed: from the command line, or from standard input."""

from __future__ import annotations

import sys

from memory.errors import Invalid

MOST = 1_000_000  # characters that are read


def read(given: str) -> str:
    """The text as it is; for "-", all of standard input. Raises Invalid, quoting nothing."""
    if given != "-":
        return given
    try:
        return sys.stdin.buffer.read(MOST * 4).decode()
    except (OSError, UnicodeDecodeError):
        raise Invalid("text", "on standard input is no UTF-8") from None
