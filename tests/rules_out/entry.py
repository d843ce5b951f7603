"""An entry of the tables: what is changed to take a rule out, and the tests that must fail then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    file: str
    there: str
    instead: str


@dataclass(frozen=True)
class Rule:
    what: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]


def rule(
    files: Mapping[str, str], modules: Mapping[str, str], what: str, tests: str, *changes: tuple[str, str, str]
) -> Rule:
    """`tests`: FILE:name, name, … FILE2:name; files as `files` calls them, and modules as `modules` does."""
    named, file = [], ""
    for word in tests.split():
        prefix, colon, name = word.rpartition(":")
        file = files[prefix] if colon else file
        named.append(f"{file}::test_{name}")
    return Rule(
        what, tuple(Change(modules.get(at, at), there, instead) for at, there, instead in changes), tuple(named)
    )
