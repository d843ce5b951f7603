"""An agent's memory rules as one typed document: the keys, types and defaults of seed 004's settings.json.

Kept is what differs from the defaults, unknown keys included; written out, a document is whole. The master switch is a
column of the agent's row, for the write path asks it with every edit, and stands in a document that is written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from memory.errors import Invalid
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.names import checked_project, storable

Document = dict[str, Any]

DEFAULTS: Document = json.loads((Path(__file__).parent / "defaults.json").read_text("utf-8"))
PROJECT_ID = "memory_rules.project_support.project_id"
READABLE_NAMES = "storage.readable_names"
OURS: Mapping[str, Any] = {PROJECT_ID: "", READABLE_NAMES: False}  # keys that are not the seed's, and have an effect
MASTER = "memory_rules.enabled"
VERSION: str = DEFAULTS["version"]
MOST_BYTES = 20_000  # of a document, as JSON: it is read with the agent's row
DEEPEST = 10  # levels of what is unknown
MOST_TOLD, LONGEST_TOLD = 20, 80  # unknown keys that an entry names, and characters of each
_NOTHING = object()
_SEMANTIC = re.compile(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}\Z")


# --- what a document says


def whole(kept: Mapping[str, Any], *, enabled: bool) -> Document:
    """The document in full: what is kept, and the default of what is not."""
    document = _merged(DEFAULTS, kept)
    document["memory_rules"]["enabled"] = enabled
    return document


def value(kept: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, such as memory_rules.cleanup_guidance_days. Raises Invalid where there is no such."""
    for document in (kept, DEFAULTS):
        found, there = _found(document, path)
        if there and not isinstance(found, dict):
            return found
    found, there = _found(_merged(DEFAULTS, kept), path)
    if not there and path not in OURS:
        raise Invalid(path, "is no setting")
    return found if there else OURS[path]


def is_on(kept: Mapping[str, Any], *path: str) -> bool:
    """A switch below memory_rules."""
    return value(kept, ".".join(("memory_rules", *path))) is True


def closed_categories(kept: Mapping[str, Any]) -> frozenset[str]:
    """Those that are switched off."""
    if "memory_rules" not in kept:  # as with nearly every agent
        return frozenset()
    return frozenset(name for name in SCOPES if not is_on(kept, "categories", name, "enabled"))


def project_id(kept: Mapping[str, Any]) -> str:
    """The project that a person has set; "" where none is."""
    found: str = value(kept, PROJECT_ID)
    return found


# --- what a document may say


def read(text: bytes) -> Document:
    """A document as it is written in a file. Raises Invalid, quoting nothing."""
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        raise Invalid("settings", "is no JSON") from None
    return _required(found)


def _once_each(pairs: list[tuple[str, Any]]) -> Document:
    """Of two values of a key JSON takes the last, and whoever wrote the file may mean the first."""
    if len(dict(pairs)) < len(pairs):
        raise Invalid("settings", "name a key twice in one object")
    return dict(pairs)


def _required(document: object) -> Document:
    if not isinstance(document, dict):
        raise Invalid("settings", "must be a JSON object")
    return document


def checked(document: object) -> Document:
    """What to keep of a document that was given, and whose master switch is looked at elsewhere. Raises Invalid with
    the path of the first key whose value is of a wrong type, or is none that there is."""
    given = _required(document)
    _require_room(given)
    _check(given, DEFAULTS, "")
    kept = _differing(given, DEFAULTS)
    rules = kept.get("memory_rules", {})
    rules.pop("enabled", None)
    if not rules:
        kept.pop("memory_rules", None)
    _require_storable(kept)
    return kept


def with_value(kept: Mapping[str, Any], path: str, text: str) -> Document:
    """The document with one key set, to a value as it is typed at a command line: true, 5, some text, a JSON list. What
    else it says is left as it is, also what could not be set any more. Raises Invalid."""
    default, there = (OURS[path], True) if path in OURS else _found(DEFAULTS, path)
    if not there or isinstance(default, dict) or path == MASTER:
        raise Invalid(path[:200], "is no setting" if path != MASTER else "is set by enable and disable")
    value = _read(default, text)
    _check_value(value, default, path)
    _require_storable(value, path)
    document = deepcopy(dict(kept))
    *above, last = path.split(".")
    inner = document
    for name in above:
        inner = inner.setdefault(name, {})
    inner[last] = value
    _require_room(document)
    return _differing(document, DEFAULTS)


def _read(default: object, text: str) -> object:
    """Text stays text where text is wanted; else it is read as JSON, and what it is not is told when it is checked."""
    if isinstance(default, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _require_room(document: Document) -> None:
    try:
        size = len(json.dumps(document, allow_nan=False, ensure_ascii=False).encode())  # half a letter has none
    except (TypeError, ValueError, RecursionError):
        raise Invalid("settings", "must be JSON: objects, lists, texts, numbers, true, false and null") from None
    if size > MOST_BYTES:
        raise Invalid("settings", f"has {size:,} bytes; at most {MOST_BYTES:,} are allowed")


def _require_storable(value: object, path: str = "settings") -> None:
    """Of what is nested no deeper than it may be."""
    if isinstance(value, str):
        storable(path, value)
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_storable(inner, path)


# --- what differs


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between two kept documents, as an entry tells it: the new value by path. Of what is not the seed's
    the outermost key alone, with null, and no more of those than can be read; the rest by its number."""
    told, others = _changed(before, after)
    names = sorted(path[:LONGEST_TOLD] for path in others)
    named: dict[str, Any] = dict.fromkeys(names[:MOST_TOLD])
    more = {"other keys": len(names) - MOST_TOLD} if len(names) > MOST_TOLD else {}
    return named | more | told  # whatever a key is called, it does not hide another


def switched_on(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The switches that are on in `after`, and were not before, by path."""
    told, _ = _changed(before, after)
    return [path for path, value in told.items() if path.endswith(".enabled") and value is True]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The seed's keys that differ, with their new values; and the paths of others."""
    told: dict[str, Any] = {}
    others: list[str] = []
    for path, value, is_known in _differences(_merged(DEFAULTS, before), _merged(DEFAULTS, after), DEFAULTS):
        if is_known:
            told[path] = value
        else:
            others.append(path)
    return told, others


def _differences(
    was: Mapping[str, Any], is_now: Mapping[str, Any], default: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, Any, bool]]:
    for name in sorted({*was, *is_now}):
        before, after = was.get(name, _NOTHING), is_now.get(name, _NOTHING)
        path, known = f"{above}.{name}" if above else name, default.get(name)
        if isinstance(known, dict) and isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, known, path)
        elif not _is_same(before, after):
            yield path, None if after is _NOTHING else after, name in default


def _is_same(one: Any, other: Any) -> bool:
    """As JSON, where 1 is not true."""
    return one is other or (one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


# --- walking


def _merged(default: Mapping[str, Any], kept: Mapping[str, Any]) -> Document:
    merged = {name: deepcopy(inner) for name, inner in default.items()}
    for name, inner in kept.items():
        below = merged.get(name)
        is_both = isinstance(below, dict) and isinstance(inner, Mapping)
        merged[name] = _merged(below, inner) if is_both and below is not None else deepcopy(inner)
    return merged


def _differing(document: Mapping[str, Any], default: Mapping[str, Any]) -> Document:
    found: Document = {}
    for name, inner in document.items():
        if name in default and isinstance(inner, dict) and isinstance(default[name], dict):
            below = _differing(inner, default[name])
            if below:
                found[name] = below
        elif name not in default or inner != default[name]:
            found[name] = deepcopy(inner)
    return found


def _found(document: Mapping[str, Any], path: str) -> tuple[Any, bool]:
    inner: Any = document
    for name in path.split("."):
        if not isinstance(inner, Mapping) or name not in inner:
            return None, False
        inner = inner[name]
    return inner, True


# --- types and values


def _check(document: Mapping[str, Any], default: Mapping[str, Any], above: str) -> None:
    for name, inner in document.items():
        path = f"{above}.{name}" if above else str(name)
        if name in default:
            _check_value(inner, default[name], path)
        elif path in OURS:
            _check_value(inner, OURS[path], path)
        elif _is_deeper(inner, DEEPEST):
            raise Invalid(path[:200], f"is nested deeper than {DEEPEST} levels")


def _is_deeper(value: object, levels: int) -> bool:
    """Without a call for each level: what is nested without end is refused here."""
    inner = [value]
    for _ in range(levels):
        inner = [
            each
            for outer in inner
            if isinstance(outer, dict | list)
            for each in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(each, dict | list) for each in inner)


_TYPES: dict[type, tuple[str, Callable[[object], bool]]] = {
    bool: ("must be true or false", lambda value: isinstance(value, bool)),
    int: ("must be a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    str: ("must be text", lambda value: isinstance(value, str)),
    list: ("must be a list of texts", lambda value: isinstance(value, list) and all(isinstance(x, str) for x in value)),
    dict: ("must be an object", lambda value: isinstance(value, dict)),
}


def _check_value(given: object, default: object, path: str) -> None:
    problem, is_right = _TYPES[type(default)]
    if not is_right(given):
        raise Invalid(path, problem)
    if isinstance(given, dict) and isinstance(default, dict):
        _check(given, default, path)
        return
    for ending, (told, fits) in _VALUES.items():
        if path.endswith(ending) and not fits(given):
            raise Invalid(path, told)
    if isinstance(given, int) and not isinstance(given, bool) and not 0 <= given <= 1_000_000:
        raise Invalid(path, "must be from 0 to 1,000,000")
    if isinstance(given, str) and (len(given) > 1_000 or not given.isprintable()):
        raise Invalid(path, "must be at most 1,000 printable characters")
    if path == PROJECT_ID:
        _check_project(given, path)
    if path.rpartition(".")[0] in _OF_PRIVATE and path.endswith((".storage_location", ".encryption_required")):
        _check_private(given, path)


def _check_private(given: object, path: str) -> None:
    """What is private stays private, and sealed."""
    if given not in (PRIVATE, True):
        raise Invalid(path, "stays as it is: what is private is sealed, and kept apart")


def _check_project(given: object, path: str) -> None:
    try:
        checked_project(given)
    except Invalid as refused:
        raise Invalid(path, refused.problem) from None


def _one_of(*choices: str) -> tuple[str, Callable[[object], bool]]:
    return f"must be one of: {', '.join(choices)}", lambda given: given in choices


_OF_PRIVATE = {f"memory_rules.categories.{name}" for name, scope in SCOPES.items() if scope == PRIVATE}
_METHODS = ("git_remote_or_directory_name", "git_remote", "directory_name")
_VALUES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "version": ("must be three numbers, such as 1.0.0", lambda given: bool(_SEMANTIC.match(str(given)))),
    ".storage_location": _one_of("common", "private", "project"),
    ".interaction_threshold": _one_of("low", "medium", "high"),
    ".project_identification_method": _one_of(*_METHODS),
    ".performance_mode": _one_of("fast", "thorough"),
    ".index_update_frequency": _one_of("realtime", "manual"),
    "storage.base_path": ("must name a folder", lambda given: bool(str(given).strip())),
}
