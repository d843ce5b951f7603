"""Values of an entry's detail, taken for what is written there and for nothing else: SQL can put any JSON in their
place. What is of another type raises TypeError, which `ill_formed` skips."""

from __future__ import annotations


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):  # to Python true and false are numbers, too
        raise TypeError
    return value


def yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value
