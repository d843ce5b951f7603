"""The settings of memory rules: the seed's keys, types and defaults; what is kept, refused and told (seed 004)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy import settings_document
from memory.policy.categories import SCOPES
from memory.policy.settings_document import DEFAULTS


def put(path: str, value: Any) -> dict[str, Any]:
    """A document that says this alone."""
    made: Any = value
    for name in reversed(path.split(".")):
        made = {name: made}
    return dict(made)


def leaves(found: Any, above: str = "") -> dict[str, Any]:
    if not isinstance(found, dict):
        return {above: found}
    told: dict[str, Any] = {}
    for name, inner in found.items():
        told |= leaves(inner, f"{above}.{name}" if above else name)
    return told


ALL = leaves(DEFAULTS)


def test_nothing_is_kept_of_the_defaults() -> None:
    assert settings_document.checked(copy.deepcopy(DEFAULTS)) == {}
    assert settings_document.whole({}, enabled=True) == DEFAULTS
    assert {path: settings_document.value({}, path) for path in ALL} == ALL
    assert settings_document.whole({}, enabled=False)["memory_rules"]["enabled"] is False
    assert settings_document.checked({"memory_rules": {"enabled": False}}) == {}  # the agent's row has it


def test_every_category_has_its_settings() -> None:
    assert set(DEFAULTS["memory_rules"]["categories"]) == set(SCOPES)
    for name, scope in SCOPES.items():
        assert DEFAULTS["memory_rules"]["categories"][name]["storage_location"] == scope
    kept = settings_document.checked(put("memory_rules.categories.session.enabled", False))
    assert settings_document.closed_categories({}) == frozenset()
    assert settings_document.closed_categories(kept) == {"session"}


_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(codec="utf-8"))  # other text is not valid JSON; another test covers it


@given(wrong=st.none() | st.booleans() | _NUMBERS | _TEXTS | st.lists(st.integers()) | st.just({}))
def test_each_setting_refuses_a_value_of_another_type(wrong: Any) -> None:
    for path, default in ALL.items():
        if type(wrong) is not type(default):
            with pytest.raises(Invalid) as refused:
                settings_document.checked(put(path, wrong))
            assert refused.value.field == path


def test_a_value_that_cannot_be_is_refused_by_its_path() -> None:
    rows: list[tuple[str, Any]] = [
        ("version", "1.0.0\n"),
        ("version", "٣.0.0"),
        ("memory_rules.categories.technical.storage_location", "elsewhere"),
        ("memory_rules.categories.credentials.storage_location", "common"),
        ("memory_rules.categories.keys.encryption_required", False),
        ("memory_rules.auto_recording.interaction_threshold", "huge"),
        ("memory_rules.auto_recording.min_interaction_length", -1),
        ("memory_rules.cleanup_guidance_days", 10**9),
        ("memory_rules.project_support.project_identification_method", "guess"),
        ("storage.base_path", "  "),
        ("storage.base_path", "x" * 2_000),
    ]
    for path, wrong in rows:
        with pytest.raises(Invalid) as refused:
            settings_document.checked(put(path, wrong))
        assert refused.value.field == path
        assert len(str(refused.value)) < 300


def test_what_is_no_document_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    rows: list[Any] = [[], {"a": float("nan")}, {"a": {1}}, {"a": "x" * 200_000}, {"mine": deep}]
    for wrong in rows:
        with pytest.raises(Invalid):
            settings_document.checked(wrong)


def test_what_is_nested_deeper_than_may_be_is_refused_by_its_path() -> None:
    for levels in (12, 1_500):
        text = '{"mine":' * levels + "1" + "}" * levels
        with pytest.raises(Invalid, match=r"mine: is nested deeper|must be JSON|is not valid JSON"):
            settings_document.checked(settings_document.read(text.encode()))
    with pytest.raises(Invalid):
        settings_document.with_value({}, "memory_rules.migration_settings.supported_source_systems", "[" * 100_000)


def test_text_that_no_database_stores_is_refused() -> None:
    rows: list[dict[str, Any]] = [
        {"a\0": 1},
        {"a": [{"b": ["c\0"]}]},
        {"memory_rules": {"x\0y": True}},
        {"a": "\ud800"},
    ]
    for document in rows:
        with pytest.raises(Invalid):
            settings_document.checked(document)
    with pytest.raises(Invalid):
        settings_document.with_value({}, "memory_rules.migration_settings.supported_source_systems", '["a\\u0000"]')


def test_what_is_no_file_of_settings_is_refused() -> None:
    rows = [b"[]", b"\xff", b"{", b"[" * 100_000, b'{"memory_rules": {"enabled": false, "enabled": true}}']
    for text in rows:
        with pytest.raises(Invalid) as refused:
            settings_document.read(text)
        assert refused.value.field == "settings"
    once_each = b'{"mine": {"a": 1}, "yours": {"a": 1}}'
    assert settings_document.read(once_each) == {"mine": {"a": 1}, "yours": {"a": 1}}


def test_keys_with_dots_are_kept_and_told() -> None:
    given = {"my.note": 1, "x": {"a.b": 2}, "": {}}
    assert settings_document.checked(given) == given
    assert settings_document.changes({}, given) == {"": None, "my.note": None, "x": None}
    assert settings_document.changes({"my.note": 1}, {"my.note": True}) == {"my.note": None}


def test_an_entry_names_no_more_than_can_be_read() -> None:
    long, many = {"K" * 9_000: {str(number): 1 for number in range(900)}}, {str(number): 1 for number in range(1_000)}
    assert settings_document.changes({}, long) == {"K" * 80: None}
    told = settings_document.changes({}, many | {"memory_rules": {"cleanup_guidance_days": 7}})
    assert (told["memory_rules.cleanup_guidance_days"], told["other keys"], len(told)) == (7, 980, 22)


def test_what_is_no_project_is_not_set_as_one() -> None:
    rows = ["a b", "../../x", "x" * 500]
    for wrong in rows:
        with pytest.raises(Invalid) as refused:
            settings_document.with_value({}, settings_document.PROJECT_ID, wrong)
        assert refused.value.field == settings_document.PROJECT_ID
        with pytest.raises(Invalid):
            settings_document.checked(put(settings_document.PROJECT_ID, wrong))


def test_one_that_was_set_before_keeps_nobody_from_another_change() -> None:
    kept = put(settings_document.PROJECT_ID, "a b")
    after = settings_document.with_value(kept, "memory_rules.categories.topic.enabled", "false")
    assert settings_document.changes(kept, after) == {"memory_rules.categories.topic.enabled": False}
    assert settings_document.project_id(after) == "a b"


def test_unknown_keys_are_kept() -> None:
    given = {"mine": {"x": [1, None, "a"]}, "memory_rules": {"categories": {"technical": {"colour": "red"}}}}
    kept = settings_document.checked(given)
    assert kept == given
    written = settings_document.whole(kept, enabled=True)
    assert written["mine"] == {"x": [1, None, "a"]}
    assert written["memory_rules"]["categories"]["technical"]["colour"] == "red"
    assert written["memory_rules"]["categories"]["technical"]["enabled"] is True


def test_what_changed_is_told_by_path() -> None:
    before = settings_document.checked(put("memory_rules.cleanup_guidance_days", 30))
    after = settings_document.checked({"mine": "secret"} | put("memory_rules.categories.topic.enabled", False))
    assert settings_document.changes(before, after) == {
        "memory_rules.categories.topic.enabled": False,
        "memory_rules.cleanup_guidance_days": 90,
        "mine": None,
    }
    assert settings_document.changes(after, after) == {}


def test_a_value_is_set_as_it_is_typed() -> None:
    rows: list[tuple[str, str, Any]] = [
        ("memory_rules.cleanup_guidance_days", "30", 30),
        ("memory_rules.categories.topic.enabled", "false", False),
        ("memory_rules.migration_settings.supported_source_systems", '["cursor"]', ["cursor"]),
        ("storage.base_path", "5", "5"),
    ]
    for path, text, value in rows:
        assert settings_document.value(settings_document.with_value({}, path, text), path) == value


def test_what_cannot_be_set_is_refused() -> None:
    rows = [
        ("memory_rules.cleanup_guidance_days", "soon"),
        ("memory_rules.categories.topic.enabled", "yes"),
        ("memory_rules.enabled", "true"),
        ("memory_rules.categories", "{}"),
        ("memory_rules.nothing", "1"),
    ]
    for path, text in rows:
        with pytest.raises(Invalid):
            settings_document.with_value({}, path, text)
    for path in ("memory_rules.nothing", "", "memory_rules.enabled.x"):
        with pytest.raises(Invalid, match="is not a setting"):
            settings_document.value({}, path)


STORABLE = st.characters(codec="utf-8", exclude_characters="\0")
VALUES = {bool: st.booleans(), int: st.integers(0, 1_000), list: st.lists(st.text(STORABLE, max_size=5), max_size=3)}
FREE = [path for path, default in ALL.items() if type(default) in VALUES and not path.endswith("encryption_required")]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(STORABLE, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(STORABLE, max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
def test_what_is_kept_says_the_same_as_what_was_given(data: st.DataObject) -> None:
    given_values = {
        path: data.draw(VALUES[type(ALL[path])])
        for path in data.draw(st.lists(st.sampled_from(FREE), max_size=6, unique=True))
    }
    said = settings_document.whole({}, enabled=True)
    for path, value in given_values.items():
        *above, last = path.split(".")
        inner = said
        for name in above:
            inner = inner[name]
        inner[last] = value
    said |= data.draw(
        st.dictionaries(st.text(STORABLE, min_size=1, max_size=5).map(lambda x: f"x-{x}"), JSON, max_size=2)
    )
    kept = settings_document.checked(copy.deepcopy(said))
    enabled = said["memory_rules"]["enabled"]
    assert settings_document.whole(kept, enabled=enabled) == said
    assert settings_document.checked(settings_document.whole(kept, enabled=enabled)) == kept
    assert json.loads(json.dumps(kept)) == kept
    assert settings_document.changes(kept, kept) == {}
    assert all(
        settings_document.value(kept, path) == value
        for path, value in given_values.items()
        if path != settings_document.MASTER
    )
