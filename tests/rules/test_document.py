"""The settings document of memory rules: defaults, validation, unknown keys, and the changes it reports (seed 004)."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy import settings_document
from memory.policy.categories import SCOPES
from memory.policy.settings_document import DEFAULTS, MASTER, changes, checked, read, value, whole, with_value

PROJECT_ID = settings_document.PROJECT_ID
DAYS = "memory_rules.cleanup_guidance_days"
SOURCES = "memory_rules.migration_settings.supported_source_systems"
TOPIC = "memory_rules.categories.topic.enabled"


def nested(path: str, leaf: Any) -> dict[str, Any]:
    """A document with this one setting."""
    for name in reversed(path.split(".")):
        leaf = {name: leaf}
    return dict(leaf)


def leaves(found: Any, parent: str = "") -> dict[str, Any]:
    if not isinstance(found, dict):
        return {parent: found}
    named = [leaves(inner, f"{parent}.{name}" if parent else name) for name, inner in found.items()]
    return {path: leaf for each in named for path, leaf in each.items()}


ALL = leaves(DEFAULTS)


def test_defaults_are_not_stored() -> None:
    assert checked(copy.deepcopy(DEFAULTS)) == {}
    assert whole({}, enabled=True) == DEFAULTS
    assert {path: value({}, path) for path in ALL} == ALL
    assert whole({}, enabled=False)["memory_rules"]["enabled"] is False
    assert checked({"memory_rules": {"enabled": False}}) == {}  # a column of the agent has it


def test_every_category_has_its_settings() -> None:
    categories = DEFAULTS["memory_rules"]["categories"]
    assert {name: each["storage_location"] for name, each in categories.items()} == SCOPES
    assert settings_document.closed_categories({}) == frozenset()
    assert settings_document.closed_categories(checked(nested("memory_rules.categories.session.enabled", False))) == {
        "session"
    }


_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(codec="utf-8"))  # other text is not valid JSON; another test covers it


@given(wrong=st.none() | st.booleans() | _NUMBERS | _TEXTS | st.lists(st.integers()) | st.just({}))
def test_each_setting_refuses_a_value_of_another_type(wrong: Any) -> None:
    for path, default in ALL.items():
        if type(wrong) is not type(default):
            with pytest.raises(Invalid) as refused:
                checked(nested(path, wrong))
            assert refused.value.field == path


INVALID: dict[str, list[Any]] = {
    "version": ["1.0.0\n", "٣.0.0"],
    "memory_rules.categories.technical.storage_location": ["elsewhere"],
    "memory_rules.categories.credentials.storage_location": ["common"],
    "memory_rules.categories.keys.encryption_required": [False],
    "memory_rules.auto_recording.interaction_threshold": ["huge"],
    "memory_rules.auto_recording.min_interaction_length": [-1],
    DAYS: [10**9],
    "memory_rules.project_support.project_identification_method": ["guess"],
    "storage.base_path": ["  ", "x" * 2_000],
    PROJECT_ID: ["a b", "../../x", "x" * 500],
}


def test_an_invalid_value_is_refused_by_its_path() -> None:
    for path, wrong in ((path, wrong) for path, values in INVALID.items() for wrong in values):
        with pytest.raises(Invalid) as refused:
            checked(nested(path, wrong))
        assert (refused.value.field, len(str(refused.value)) < 300) == (path, True)
        if isinstance(wrong, str):
            with pytest.raises(Invalid):
                with_value({}, path, wrong)


def test_an_invalid_document_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    documents: list[Any] = [[], {"a": float("nan")}, {"a": {1}}, {"a": "x" * 200_000}, {"mine": deep}]
    documents += [{"a\0": 1}, {"a": [{"b": ["c\0"]}]}, {"memory_rules": {"x\0y": True}}, {"a": "\ud800"}]
    for document in documents:
        with pytest.raises(Invalid):
            checked(document)
    for levels in (12, 1_500):
        with pytest.raises(Invalid, match=r"mine: is nested deeper|must be JSON|is not valid JSON"):
            checked(read(('{"mine":' * levels + "1" + "}" * levels).encode()))


def test_an_invalid_file_is_refused() -> None:
    for text in (b"[]", b"\xff", b"{", b"[" * 100_000, b'{"memory_rules": {"enabled": false, "enabled": true}}'):
        with pytest.raises(Invalid) as refused:
            read(text)
        assert refused.value.field == "settings"
    assert read(b'{"mine": {"a": 1}, "yours": {"a": 1}}') == {"mine": {"a": 1}, "yours": {"a": 1}}


def test_a_typed_value_is_set() -> None:
    rows = [(DAYS, "30", 30), (TOPIC, "false", False), (SOURCES, '["cursor"]', ["cursor"])]
    for path, text, expected in [*rows, ("storage.base_path", "5", "5")]:
        assert value(with_value({}, path, text), path) == expected
    wrong = [(DAYS, "soon"), (TOPIC, "yes"), (MASTER, "true"), (SOURCES, "[" * 100_000), (SOURCES, '["a\\u0000"]')]
    for path, text in [*wrong, ("memory_rules.categories", "{}"), ("memory_rules.nothing", "1")]:
        with pytest.raises(Invalid):
            with_value({}, path, text)
    for path in ("memory_rules.nothing", "", "memory_rules.enabled.x"):
        with pytest.raises(Invalid, match="is not a setting"):
            value({}, path)


def test_changes_are_reported_by_path_without_values_of_unknown_keys() -> None:
    before = checked(nested(DAYS, 30))
    after = checked({"mine": "secret"} | nested(TOPIC, False))
    assert changes(before, after) == {TOPIC: False, DAYS: 90, "mine": None}
    dotted = {"my.note": 1, "x": {"a.b": 2}, "": {}}
    assert checked(dotted) == dotted
    assert changes({}, dotted) == {"": None, "my.note": None, "x": None}
    assert changes({"my.note": 1}, {"my.note": True}) == {"my.note": None}
    invalid = nested(PROJECT_ID, "a b")  # stored earlier: it does not block other changes
    after = with_value(invalid, TOPIC, "false")
    assert (changes(invalid, after), settings_document.value(after, PROJECT_ID)) == ({TOPIC: False}, "a b")
    assert changes({}, {"K" * 9_000: {str(number): 1 for number in range(900)}}) == {"K" * 80: None}
    found = changes({}, {str(number): 1 for number in range(1_000)} | nested(DAYS, 7))
    assert (found[DAYS], found["other keys"], len(found)) == (7, 980, 22)  # the size is limited


STORABLE = st.characters(codec="utf-8", exclude_characters="\0")
VALUES = {bool: st.booleans(), int: st.integers(0, 1_000), list: st.lists(st.text(STORABLE, max_size=5), max_size=3)}
FREE = [path for path, default in ALL.items() if type(default) in VALUES and not path.endswith("encryption_required")]
UNKNOWN = st.text(STORABLE, min_size=1, max_size=5).map(lambda name: f"x-{name}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(STORABLE, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(STORABLE, max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
def test_the_stored_document_equals_the_written_one(data: st.DataObject) -> None:
    """Also for unknown keys, at the top and within a category."""
    paths = data.draw(st.lists(st.sampled_from(FREE), max_size=6, unique=True))
    values = {path: data.draw(VALUES[type(ALL[path])]) for path in paths}
    document = whole({}, enabled=True)
    for path, leaf in values.items():
        *parents, last = path.split(".")
        inner = document
        for name in parents:
            inner = inner[name]
        inner[last] = leaf
    document |= data.draw(st.dictionaries(UNKNOWN, JSON, max_size=2))
    document["memory_rules"]["categories"]["technical"] |= data.draw(st.dictionaries(UNKNOWN, JSON, max_size=1))
    enabled = document["memory_rules"]["enabled"]
    stored = checked(copy.deepcopy(document))
    assert whole(stored, enabled=enabled) == document
    assert checked(whole(stored, enabled=enabled)) == stored == json.loads(json.dumps(stored))
    assert changes(stored, stored) == {}
    assert all(value(stored, path) == leaf for path, leaf in values.items() if path != MASTER)
