"""An agent's memory rules as one typed document: the keys, types and defaults of seed 004's settings.json.

Only what differs from the defaults is kept, with unknown keys. A document that is written out is whole. The master
switch is a column of the agent's row, because each edit asks for it; a document that is written out has it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from memory.errors import Invalid
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.validation import checked_project, require_storable

Document = dict[str, Any]
Keys = tuple[str, ...]  # from the outermost to that of a value

DEFAULTS: Document = json.loads((Path(__file__).parent / "defaults.json").read_text("utf-8"))
PROJECT_ID = "memory_rules.project_support.project_id"
READABLE_NAMES = "storage.readable_names"
OURS: Mapping[str, Any] = {PROJECT_ID: "", READABLE_NAMES: False}  # keys that are not the seed's, and have an effect
MASTER = "memory_rules.enabled"
VERSION: str = DEFAULTS["version"]
MOST_BYTES = 20_000  # of a document, as JSON: it is read with the agent's row
DEEPEST = 10  # levels of what is unknown
MOST_TOLD, LONGEST_TOLD = 20, 80  # unknown keys that an entry names, and characters of each
NOTHING = object()


# --- walking through a document


def values(document: Mapping[str, Any], known: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any, Any]]:
    """Each value that is no object of settings: its keys, itself, and its default. An unknown key has one value,
    whatever is in it."""
    for name, inner in document.items():
        default = known.get(name, NOTHING)
        if isinstance(default, Mapping) and isinstance(inner, Mapping):
            yield from values(inner, default, (*above, name))
        else:
            yield (*above, name), inner, default


def _put(document: Document, keys: Keys, value: Any) -> None:
    *above, last = keys
    for name in above:
        document = document.setdefault(name, {})
    document[last] = value


def _at(document: Mapping[str, Any], path: str) -> Any:
    inner: Any = document
    for name in path.split("."):
        if not isinstance(inner, Mapping) or name not in inner:
            return NOTHING
        inner = inner[name]
    return inner


def _merged(default: Mapping[str, Any], kept: Mapping[str, Any]) -> Document:
    merged = deepcopy(dict(default))
    for keys, value, _ in values(kept, default):
        _put(merged, keys, deepcopy(value))
    return merged


def _differing(document: Mapping[str, Any]) -> Document:
    found: Document = {}
    for keys, value, default in values(document, SETTINGS):
        if default is NOTHING or value != default:
            _put(found, keys, deepcopy(value))
    return found


SETTINGS = deepcopy(DEFAULTS)
for _path, _default in OURS.items():
    _put(SETTINGS, tuple(_path.split(".")), _default)
PATHS = {".".join(keys): default for keys, default, _ in values(SETTINGS, SETTINGS)}


# --- what a document says


def whole(kept: Mapping[str, Any], *, enabled: bool) -> Document:
    """The document in full: what is kept, and the default of what is not."""
    document = _merged(DEFAULTS, kept)
    document["memory_rules"]["enabled"] = enabled
    return document


def value(kept: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, such as memory_rules.cleanup_guidance_days. Raises Invalid for an unknown path."""
    for document in (kept, SETTINGS):
        found = _at(document, path)
        if found is not NOTHING and not isinstance(found, dict):
            return found
    found = _at(_merged(DEFAULTS, kept), path)
    if found is NOTHING:
        raise Invalid(path, "is no setting")
    return found


def is_on(kept: Mapping[str, Any], *path: str) -> bool:
    """A switch below memory_rules."""
    return value(kept, ".".join(("memory_rules", *path))) is True


def closed_categories(kept: Mapping[str, Any]) -> frozenset[str]:
    """Those that are switched off."""
    if "memory_rules" not in kept:  # as with nearly every agent
        return frozenset()
    return frozenset(name for name in SCOPES if not is_on(kept, "categories", name, "enabled"))


def project_id(kept: Mapping[str, Any]) -> str:
    """The project that a person has set; "" if none is set."""
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
    """JSON takes the last of two values of a key, and whoever wrote the file may mean the first."""
    if len(dict(pairs)) < len(pairs):
        raise Invalid("settings", "name a key twice in one object")
    return dict(pairs)


def _required(document: object) -> Document:
    if not isinstance(document, dict):
        raise Invalid("settings", "must be a JSON object")
    return document


def checked(document: object) -> Document:
    """What to keep of a document; the master switch is not in it. Raises Invalid with the path of the first key that
    has a wrong value."""
    given = _required(document)
    _require_room(given)
    for keys, value, default in values(given, SETTINGS):
        path = ".".join(keys)
        if default is not NOTHING:
            _check_value(value, default, path)
        require_storable("settings", path)
        _require_all_storable(value, path[:200], DEEPEST)
    kept = _differing(given)
    kept.get("memory_rules", {}).pop("enabled", None)
    if kept.get("memory_rules") == {}:
        del kept["memory_rules"]
    return kept


def with_value(kept: Mapping[str, Any], path: str, text: str) -> Document:
    """The document with one key set, to a value as it is typed at a command line: true, 5, some text, a JSON list. All
    else stays as it is, also what could not be set any more. Raises Invalid."""
    if path not in PATHS or path == MASTER:
        raise Invalid(path[:200], "is no setting" if path != MASTER else "is set by enable and disable")
    value = _read(PATHS[path], text)
    _check_value(value, PATHS[path], path)
    _require_all_storable(value, path, DEEPEST)
    document = deepcopy(dict(kept))
    _put(document, tuple(path.split(".")), value)
    _require_room(document)
    return _differing(document)


def _read(default: object, text: str) -> object:
    """Text, or JSON if the setting is no text. The check refuses what is neither."""
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


def _require_all_storable(value: object, path: str, levels: int) -> None:
    if isinstance(value, str):
        require_storable(path, value)
    elif isinstance(value, dict | list):
        if not levels:
            raise Invalid(path, f"is nested deeper than {DEEPEST} levels")
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_all_storable(inner, path, levels - 1)


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
    was, now = (_as_json(_merged(DEFAULTS, kept)) for kept in (before, after))
    changed = sorted(keys for keys in {*was, *now} if was.get(keys) != now.get(keys))
    ours = {keys for keys, _, _ in values(DEFAULTS, DEFAULTS)}
    told = {".".join(keys): json.loads(now[keys]) for keys in changed if keys in ours}
    return told, [".".join(keys) for keys in changed if keys not in ours]


def _as_json(document: Document) -> dict[Keys, str]:
    """In JSON 1 is not true."""
    return {keys: json.dumps(value, sort_keys=True) for keys, value, _ in values(document, DEFAULTS)}


# --- types and values

_TYPES = {bool: "true or false", int: "a whole number", str: "text", list: "a list of texts", dict: "an object"}
_CHOICES = {
    "storage_location": ("common", "private", "project"),
    "interaction_threshold": ("low", "medium", "high"),
    "project_identification_method": ("git_remote_or_directory_name", "git_remote", "directory_name"),
    "performance_mode": ("fast", "thorough"),
    "index_update_frequency": ("realtime", "manual"),
}
_SEMANTIC = re.compile(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}\Z")
_FIXED = {
    f"memory_rules.categories.{category}.{name}"
    for category, scope in SCOPES.items()
    if scope == PRIVATE
    for name in ("storage_location", "encryption_required")
}


def _check_value(given: object, default: object, path: str) -> None:
    is_texts = not isinstance(given, list) or all(isinstance(each, str) for each in given)
    if type(given) is not type(default) or not is_texts:
        raise Invalid(path, f"must be {_TYPES[type(default)]}")
    if problem := _number_problem(given) if isinstance(given, int) else _text_problem(given, path):
        raise Invalid(path, problem)
    if path in _FIXED and given != default:
        raise Invalid(path, "stays as it is: what is private is sealed, and kept apart")
    if path == PROJECT_ID:
        checked_project(given, path)


def _number_problem(given: int) -> str:
    return "" if 0 <= given <= 1_000_000 else "must be from 0 to 1,000,000"


def _text_problem(given: object, path: str) -> str:
    choices = _CHOICES.get(path.rpartition(".")[2], (given,))
    if given not in choices:
        return f"must be one of: {', '.join(map(str, choices))}"
    if not isinstance(given, str):
        return ""
    if path == "version" and not _SEMANTIC.match(given):
        return "must be three numbers, such as 1.0.0"
    if path == "storage.base_path" and not given.strip():
        return "must name a folder"
    return "" if len(given) <= 1_000 and given.isprintable() else "must be at most 1,000 printable characters"
