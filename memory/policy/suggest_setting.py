"""Suggests a setting for an unknown key."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from memory.policy.settings_document import MASTER, NOTHING, PATHS, SETTINGS, values

_ALIKE = 0.8  # similarity from 0 to 1; 0.8 allows one or two different letters
_LONGEST = 200  # keys with more characters are not compared
_MOST = 20  # the most suggestions for one document
_ALL = [path for path in PATHS if path != MASTER]
_PARENTS = {path.rpartition(".")[0] for path in _ALL}
_SECTIONS = (_PARENTS | {path.rpartition(".")[0] for path in _PARENTS}) - {""}


def similar(key: str) -> str:
    """Return the path of the setting that is similar to the key, or "". `key` can also be the last part of a
    path, if only one path ends with this part."""
    if not key or len(key) > _LONGEST:
        return ""
    ending = [path for path in _ALL if path.endswith(f".{key}")]
    if len(ending) == 1:
        return ending[0]
    names = {path.rpartition(".")[2] for path in _ALL}
    name = _like(key.rpartition(".")[2], names)
    named = [path for path in _ALL if path.rpartition(".")[2] == name]
    return _like(key, _ALL) or (named[0] if len(named) == 1 else "")


def hint(key: str) -> str:
    """Return a question that is added to the error about an unknown key. Return "" if no setting is similar."""
    return f". Did you mean {found}?" if (found := similar(key)) else ""


def mistyped(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Find the unknown keys of a document that are similar to a setting or to a group of settings. Return pairs: the
    unknown key, and the path of the setting or group."""
    unknown = ((".".join(keys), value) for keys, value, default in values(document, SETTINGS) if default is NOTHING)
    found = ((key, _like(key, _SECTIONS) if isinstance(value, Mapping) else similar(key)) for key, value in unknown)
    return list(islice((each for each in found if each[1]), _MOST))


def _like(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, known, n=1, cutoff=_ALIKE) if len(key) <= _LONGEST else []
    return near[0] if near else ""
