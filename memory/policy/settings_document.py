"""Define an agent's memory rules as a settings document (settings.json) with keys, types and defaults.

The database stores only unknown keys, and values that differ from the defaults. The API and the commands show the
complete document. The master switch is a column of the agent's row, because every edit checks it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from memory.errors import Invalid
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.validation import checked_project, require_storable

Document = dict[str, Any]
Keys = tuple[str, ...]  # the path of a value

DEFAULTS: Document = json.loads((Path(__file__).parent / "defaults.json").read_text("utf-8"))
PROJECT_ID = "memory_rules.project_support.project_id"
READABLE_NAMES = "storage.readable_names"
OURS: Mapping[str, Any] = {PROJECT_ID: "", READABLE_NAMES: False}  # settings that are not in defaults.json
MASTER = "memory_rules.enabled"
VERSION: str = DEFAULTS["version"]
MAX_BYTES = 20_000  # the most bytes of a document as JSON; the document is read with each agent's row
MAX_LEVELS = 10  # the most levels to which unknown values can be nested
MAX_NAMED, MAX_NAME = 20, 80  # the most unknown keys in an audit entry, and the most characters of each key
NOTHING = object()


# --- walking through a document


def values(document: Mapping[str, Any], known: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any, Any]]:
    """Yield the path, the value and the default of each setting in `document`. An unknown key is yielded as one value,
    even if its value is an object."""
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


# --- reading values


def whole(kept: Mapping[str, Any], *, enabled: bool) -> Document:
    """Return the complete document: the stored values, and the defaults of all other settings."""
    document = _merged(DEFAULTS, kept)
    document["memory_rules"]["enabled"] = enabled
    return document


def value(kept: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path such as memory_rules.cleanup_guidance_days. Raises Invalid for an unknown path."""
    for document in (kept, SETTINGS):
        found = _at(document, path)
        if found is not NOTHING and not isinstance(found, dict):
            return found
    found = _at(_merged(DEFAULTS, kept), path)
    if found is NOTHING:
        raise Invalid(path, "is not a setting")
    return found


def is_on(kept: Mapping[str, Any], *path: str) -> bool:
    """Whether a switch in the section memory_rules is on."""
    return value(kept, ".".join(("memory_rules", *path))) is True


def closed_categories(kept: Mapping[str, Any]) -> frozenset[str]:
    """Return the categories that are off."""
    if "memory_rules" not in kept:  # the common case
        return frozenset()
    return frozenset(name for name in SCOPES if not is_on(kept, "categories", name, "enabled"))


# --- parsing and validation


def read(text: bytes | str) -> Document:
    """Parse a settings document. Raises Invalid. The error does not quote the text."""
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Invalid("settings", "is not valid JSON") from None
    return _required(found)


def _unique(pairs: list[tuple[str, Any]]) -> Document:
    """Refuse duplicate keys, because the JSON parser would use the last value without a warning."""
    if len(dict(pairs)) < len(pairs):
        raise Invalid("settings", "has the same key twice in one object")
    return dict(pairs)


def _required(document: object) -> Document:
    if not isinstance(document, dict):
        raise Invalid("settings", "must be a JSON object")
    return document


def checked(document: object) -> Document:
    """Validate a document. Returns the values to store, without the master switch. Raises Invalid for the first invalid
    key."""
    submitted = _required(document)
    _require_room(submitted)
    for keys, value, default in values(submitted, SETTINGS):
        path = ".".join(keys)
        if default is not NOTHING:
            _check_value(value, default, path)
        require_storable("settings", path)
        _require_all_storable(value, path[:200], MAX_LEVELS)
    kept = _differing(submitted)
    kept.get("memory_rules", {}).pop("enabled", None)
    if kept.get("memory_rules") == {}:
        del kept["memory_rules"]
    return kept


def with_value(kept: Mapping[str, Any], path: str, text: str) -> Document:
    """Return the document with one changed setting. `text` is the value that a person typed in a command: true, 5, some
    text, or a JSON list. Other settings are not validated again. Raises Invalid."""
    if path not in PATHS or path == MASTER:
        raise Invalid(path[:200], "is not a setting" if path != MASTER else "is set by the commands enable and disable")
    value = _read(PATHS[path], text)
    _check_value(value, PATHS[path], path)
    _require_all_storable(value, path, MAX_LEVELS)
    document = deepcopy(dict(kept))
    _put(document, tuple(path.split(".")), value)
    _require_room(document)
    return _differing(document)


def with_defaults(kept: Mapping[str, Any], names: Iterable[str]) -> Document:
    """Return the document with the defaults of these settings."""
    document = deepcopy(dict(kept))
    for path in names:
        _put(document, tuple(path.split(".")), PATHS[path])
    return _differing(document)


def _read(default: object, text: str) -> object:
    """Return the text itself for a text setting, and the parsed JSON for other settings. Invalid JSON is returned as
    text, which the next check refuses."""
    if isinstance(default, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _require_room(document: Document) -> None:
    try:
        size = len(
            json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
        )  # this fails if the document contains half of a surrogate pair
    except (TypeError, ValueError, RecursionError):
        raise Invalid("settings", "must be JSON: objects, lists, strings, numbers, true, false and null") from None
    if size > MAX_BYTES:
        raise Invalid("settings", f"has {size:,} bytes; the maximum is {MAX_BYTES:,}")


def _require_all_storable(value: object, path: str, levels: int) -> None:
    if isinstance(value, str):
        require_storable(path, value)
    elif isinstance(value, dict | list):
        if not levels:
            raise Invalid(path, f"is nested deeper than {MAX_LEVELS} levels")
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_all_storable(inner, path, levels - 1)


# --- differences


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences between two stored documents, for an audit entry. Each changed setting is listed with its
    new value. Each changed unknown key is listed with null. The keys inside its value are not listed. At most MAX_NAMED
    unknown keys are listed. The others are counted."""
    known, unknown = _changed(before, after)
    names = sorted(path[:MAX_NAME] for path in unknown)
    named: dict[str, Any] = dict.fromkeys(names[:MAX_NAMED])
    more = {"other keys": len(names) - MAX_NAMED} if len(names) > MAX_NAMED else {}
    return named | more | known  # a known setting replaces an unknown key with the same path


def switched_on(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the paths of the switches that are on in `after` but not in `before`."""
    known, _ = _changed(before, after)
    return [path for path, value in known.items() if path.endswith(".enabled") and value is True]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return two results: the settings that differ, with their new values, and the paths of the unknown keys that
    differ."""
    was, now = (_as_json(_merged(DEFAULTS, kept)) for kept in (before, after))
    changed = sorted(keys for keys in {*was, *now} if was.get(keys) != now.get(keys))
    known = {keys for keys, _, _ in values(DEFAULTS, DEFAULTS)}
    differing = {".".join(keys): json.loads(now[keys]) for keys in changed if keys in known}
    return differing, [".".join(keys) for keys in changed if keys not in known]


def _as_json(document: Document) -> dict[Keys, str]:
    """Return each value as JSON, because 1 and true differ in JSON but are equal in Python."""
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
_SEALED = "|".join(name for name, scope in SCOPES.items() if scope == PRIVATE)
_FIXED = re.compile(rf"memory_rules\.categories\.({_SEALED})\.(storage_location|encryption_required)\Z")


def _check_value(value: object, default: object, path: str) -> None:
    is_texts = not isinstance(value, list) or all(isinstance(each, str) for each in value)
    if type(value) is not type(default) or not is_texts:
        raise Invalid(path, f"must be {_TYPES[type(default)]}")
    if problem := _problem(value, path):
        raise Invalid(path, problem)
    if _FIXED.match(path) and value != default:
        raise Invalid(path, "cannot be changed: private memories are always sealed and stored separately")
    if path == PROJECT_ID:
        checked_project(value, path)


def _problem(value: object, path: str) -> str:
    if isinstance(value, int):
        return "" if 0 <= value <= 1_000_000 else "must be from 0 to 1,000,000"
    choices = _CHOICES.get(path.rpartition(".")[2], (value,))
    if value not in choices:
        return f"must be one of: {', '.join(map(str, choices))}"
    if not isinstance(value, str):
        return ""
    if path == "version" and not _SEMANTIC.match(value):
        return "must be three numbers, such as 1.0.0"
    if path == "storage.base_path" and not value.strip():
        return "must be the path of a folder"
    return "" if len(value) <= 1_000 and value.isprintable() else "must be at most 1,000 printable characters"
