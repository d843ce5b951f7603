"""Which setting somebody may have meant by a key that is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any

from memory.policy.settings_document import DEFAULTS, MASTER, OURS

_ALIKE = 0.8  # of 1: as two that differ in a letter or two
_LONGEST = 200  # characters of a key that is compared
_MOST = 20  # that are told of a document


def meant(key: str) -> str:
    """The setting that a key is like; "" where there is none. The end of a path is enough where but one has it."""
    if not key or len(key) > _LONGEST:
        return ""
    ending = [path for path in _all() if path.endswith(f".{key}")]
    if len(ending) == 1:
        return ending[0]
    return _like(key, _all()) or _by_its_name(key)


def hint(key: str) -> str:
    """For people, behind what is wrong with a key."""
    return f"; did you mean {found}?" if (found := meant(key)) else ""


def mistyped(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of the keys that are none of ours, and kept all the same, those that are like one of ours: and like which."""
    unknown = _unknown(document, DEFAULTS, "")
    found = ((key, _like(key, _sections()) if is_section else meant(key)) for key, is_section in unknown)
    return list(islice((each for each in found if each[1]), _MOST))


def _like(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, known, n=1, cutoff=_ALIKE) if len(key) <= _LONGEST else []
    return near[0] if near else ""


def _by_its_name(key: str) -> str:
    """By the last part of a path, mistyped, where but one setting is called like that."""
    names: dict[str, list[str]] = {}
    for path in _all():
        names.setdefault(path.rpartition(".")[2], []).append(path)
    settings = names.get(_like(key.rpartition(".")[2], names), [])
    return settings[0] if len(settings) == 1 else ""


@cache
def _all() -> tuple[str, ...]:
    return (*_paths(DEFAULTS, ""), *OURS)


@cache
def _sections() -> frozenset[str]:
    paths = {path.rpartition(".")[0] for path in _all()}
    return frozenset(paths | {path.rpartition(".")[0] for path in paths}) - {""}


def _paths(document: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, inner in document.items():
        path = f"{above}{name}"
        if isinstance(inner, dict):
            yield from _paths(inner, f"{path}.")
        elif path != MASTER:
            yield path


def _unknown(document: Mapping[str, Any], default: Mapping[str, Any], above: str) -> Iterator[tuple[str, bool]]:
    """The outermost of each, and whether it is one that holds others."""
    for name, inner in document.items():
        path = f"{above}{name}"
        if name not in default and path not in OURS:
            yield path, isinstance(inner, Mapping)
        elif isinstance(inner, Mapping) and isinstance(default.get(name), Mapping):
            yield from _unknown(inner, default[name], f"{path}.")
