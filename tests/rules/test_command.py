"""The command `rules`: status, settings, and consent before anything is turned on (seed 004)."""

import json
from pathlib import Path

import pytest

from memory.agents import rule_changes
from memory.models import Agent
from memory.policy import suggest_setting
from memory.policy.settings_document import MASTER
from tests.commands.calling import failed
from tests.rules.recordings import at_a_terminal, rules
from tests.steps import PERSON, fresh, last_entry

RECORDING = "memory_rules.auto_recording.enabled"


@pytest.fixture
def closed(ada: Agent) -> Agent:
    """Memory and the category technical are off."""
    technical_off = {"memory_rules": {"categories": {"technical": {"enabled": False}}}}
    rule_changes.change(ada, PERSON, enabled=False, rules=technical_off)
    return fresh(ada)


def test_status_and_settings_are_printed(closed: Agent) -> None:
    ran = rules("status")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (0, "acme/ada: memory is off, rules 1.0.0")
    assert "off technical        common      90 days suggested" in lines
    assert "on  session          project     60 days suggested" in lines
    found = rules("status", "--json").json
    assert (found["enabled"], found["recording"], found["categories"]["technical"]["enabled"]) == (False, False, False)
    assert json.loads(rules("settings").out) == rule_changes.whole(closed)
    assert json.loads(rules("settings", "memory_rules.compression").out) == {"enabled": False, "threshold_mb": 50}


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "maybe\n"])
def test_without_an_explicit_yes_nothing_is_switched_on(closed: Agent, answer: str) -> None:
    ran = at_a_terminal(answer, "enable")
    assert (ran.code, fresh(closed).memory_enabled, "Nothing was changed." in ran.err) == (0, False, True)


def test_a_yes_turns_memory_on_after_an_unclear_answer_is_asked_again(closed: Agent) -> None:
    ran = at_a_terminal("maybe\nyo\ny\n", "enable")
    assert (ran.code, ran.err.count("(y/n)"), "Changed, as entry" in ran.err) == (0, 3, True)
    assert rule_changes.QUESTION in ran.err
    assert rule_changes.GOOD_FOR in ran.err
    assert fresh(closed).memory_enabled
    assert last_entry(closed).detail == {"rules": {MASTER: True}}


def test_without_a_terminal_only_yes_as_an_option_turns_something_on(closed: Agent) -> None:
    for args in (("--category", "technical"), ("--recording",), ()):
        ran = rules("enable", *args)
        assert (ran.code, "--yes" in ran.err) == (0, True)
    assert (fresh(closed).memory_enabled, fresh(closed).rules) == (False, closed.rules)
    assert rules("enable", "--yes").code == 0
    assert fresh(closed).memory_enabled


@pytest.mark.parametrize("path", [RECORDING, MASTER])
def test_a_switch_that_is_set_as_a_setting_needs_the_same_consent(closed: Agent, path: str) -> None:
    assert "--yes" in rules("settings", path, "true").err
    assert rules("settings", path).out == "false\n"
    assert path in at_a_terminal("y\n", "settings", path, "true").err
    assert rules("settings", path).out == "true\n"
    assert rules("settings", path, "false").code == 0
    assert rules("settings", path).out == "false\n"


def test_turning_off_needs_no_consent(ada: Agent) -> None:
    rules("settings", RECORDING, "true", "--yes")
    for args in (("--category", "topic"), ("--recording",), ()):
        assert rules("disable", *args).code == 0
    found = rules("status", "--json").json
    assert (found["enabled"], found["recording"], found["categories"]["topic"]["enabled"]) == (False, False, False)
    assert "Nothing to change." in rules("disable").err


def test_a_file_replaces_all_settings(closed: Agent, tmp_path: Path) -> None:
    document = rule_changes.whole(closed) | {"mine": [1]}
    document["memory_rules"]["cleanup_guidance_days"] = 7
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(document))
    assert rules("settings", "--file", str(file)).code == 0
    assert json.loads(rules("settings").out) == document
    document["memory_rules"]["enabled"] = True
    text = json.dumps(document).encode()
    assert "--yes" in rules("settings", "--file", "-", stdin=text).err
    assert not fresh(closed).memory_enabled
    assert rules("settings", "--file", "-", "--yes", stdin=text).code == 0
    assert fresh(closed).memory_enabled


def test_settings_cannot_control_a_terminal(ada: Agent) -> None:
    text = "gnp\u202e.exe\x1b[31m"
    assert rules("settings", "--file", "-", stdin=json.dumps({"memory_rules": {}, "mine": text}).encode()).code == 0
    printed = rules("settings").out
    assert ("\u202e" in printed, "\x1b" in printed, json.loads(printed)["mine"]) == (False, False, text)


def test_invalid_arguments_change_nothing(ada: Agent) -> None:
    before = last_entry(ada).seq
    for args in (
        ("settings", "memory_rules.nothing", "1"),
        ("settings", "memory_rules.nothing"),
        ("settings", "memory_rules.cleanup_guidance_days", "soon"),
        ("settings", MASTER, "soon"),
        ("settings", "x", "--file", "-"),
        ("enable", "--category", "nothing"),
        ("enable", "--category", "topic", "--recording"),
    ):
        failed(rules(*args, stdin=b"{}"), 2)
    for text in (b"{", b"[]", b'{"memory_rules": {"enabled": "yes"}}', b"\xff"):
        failed(rules("settings", "--file", "-", stdin=text), 2)
    failed(rules("settings", "--file", "/nothing/here"), 2, "no such file")
    assert last_entry(ada).seq == before


SUGGESTED = {
    "memory_rules.auto_recordng.enabled": RECORDING,
    "auto_recording.enabled": RECORDING,
    "memory_rules.categories.tecnical.enabled": "memory_rules.categories.technical.enabled",
    "base_pth": "storage.base_path",
    "sailing": "",
    "x" * 100_000: "",
}


def test_an_unknown_key_is_refused_with_a_similar_setting(ada: Agent) -> None:
    assert {key: suggest_setting.similar(key) for key in SUGGESTED} == SUGGESTED
    for value in ([], ["false"]):
        suggestion = f"is not a setting. Did you mean {RECORDING}?"
        failed(rules("settings", "memory_rules.auto_recordng.enabled", *value), 2, suggestion)
        failed(rules("settings", "sailing", *value), 2, "is not a setting")


def test_a_file_with_unknown_keys_is_stored_with_a_warning(ada: Agent) -> None:
    document = {"memory_rules": {"auto_recordng": {"enabled": True}, "sailing": {"x": 1}, "cleanup_guidance_dys": 3}}
    ran = rules("settings", "--file", "-", stdin=json.dumps(document).encode())
    assert ran.code == 0
    for wrong, right in (("auto_recordng", "auto_recording"), ("cleanup_guidance_dys", "cleanup_guidance_days")):
        assert f"memory_rules.{wrong} is not a setting. It is stored, but has no effect." in ran.err
        assert f"Did you mean memory_rules.{right}?" in ran.err
    assert ran.err.count("is not a setting") == 2
    assert rule_changes.whole(fresh(ada))["memory_rules"]["sailing"] == {"x": 1}
