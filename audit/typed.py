"""Checks the types of the values in an entry's `detail`. SQL typed by hand can put any JSON there.

A wrong type raises TypeError, which `ill_formed` catches.
"""

from __future__ import annotations


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):  # in Python, a boolean is an integer
        raise TypeError
    return value


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value
