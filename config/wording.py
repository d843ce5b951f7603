"""Phrases that all interfaces use."""

from __future__ import annotations


def several(number: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 trail", "2,000 trails". Give `many` only if the plural is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
