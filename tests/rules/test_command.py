"""`memory_rules`: what is on is shown, and nothing is switched on without a yes (seed 004)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory.agents import rule_changes
from memory.models import Agent
from memory.policy import suggest_setting
from memory.policy.settings_document import DEFAULTS
from tests.commands.calling import failed
from tests.rules.talking import at_a_terminal, rules
from tests.steps import PERSON, fresh, last_entry


def without(category: str) -> dict[str, Any]:
    return {"memory_rules": {"categories": {category: {"enabled": False}}}}


@pytest.fixture
def closed(ada: Agent) -> Agent:
    """With memory off, and technical memories too."""
    rule_changes.change(ada, PERSON, enabled=False, rules=without("technical"))
    return fresh(ada)


def test_what_is_on_is_shown(closed: Agent) -> None:
    ran = rules("status")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (0, "acme/ada: memory is off, rules 1.0.0")
    assert "off technical        common      90 days suggested" in lines
    assert "on  session          project     60 days suggested" in lines
    told = rules("status", "--json").json
    assert (told["enabled"], told["recording"], told["categories"]["technical"]["enabled"]) == (False, False, False)


def test_switching_on_asks(closed: Agent) -> None:
    ran = at_a_terminal("y\n", "enable")
    assert ran.code == 0
    assert rule_changes.QUESTION in ran.err
    assert rule_changes.GOOD_FOR in ran.err
    assert fresh(closed).memory_enabled
    assert last_entry(closed).detail == {"rules": {"memory_rules.enabled": True}}


def test_declined_nothing_is_done(closed: Agent) -> None:
    for answer in ("n\n", "\n", "", "maybe\n"):
        ran = at_a_terminal(answer, "enable")
        assert (ran.code, fresh(closed).memory_enabled) == (0, False)
        assert "Nothing was changed." in ran.err


def test_where_nobody_can_be_asked_it_is_a_no(closed: Agent) -> None:
    for args in (("enable",), ("enable", "--category", "technical"), ("enable", "--recording")):
        ran = rules(*args)
        assert ran.code == 0
        assert "--yes" in ran.err
    assert (fresh(closed).memory_enabled, fresh(closed).rules) == (False, closed.rules)
    assert rules("enable", "--yes").code == 0
    assert fresh(closed).memory_enabled


def test_setting_a_switch_is_switching_it_on(closed: Agent) -> None:
    path = "memory_rules.auto_recording.enabled"
    assert "--yes" in rules("settings", path, "true").err
    assert rules("settings", path).out == "false\n"
    assert rules("settings", path, "true", "--yes").code == 0
    assert rules("settings", path).out == "true\n"
    assert rules("disable", "--recording").code == 0
    assert rules("settings", path).out == "false\n"


def test_the_master_switch_is_a_setting_like_others_and_asked_about(closed: Agent) -> None:
    assert rules("settings", "memory_rules.enabled", "true").code == 0
    assert not fresh(closed).memory_enabled  # nobody was there to ask
    assert "memory as a whole" in at_a_terminal("y\n", "settings", "memory_rules.enabled", "true").err
    assert fresh(closed).memory_enabled
    assert rules("settings", "memory_rules.enabled", "false").code == 0
    assert not fresh(closed).memory_enabled


def test_switching_off_asks_nobody(ada: Agent) -> None:
    assert rules("disable", "--category", "topic").code == 0
    assert rules("disable").code == 0
    told = rules("status", "--json").json
    assert (told["enabled"], told["categories"]["topic"]["enabled"]) == (False, False)
    assert "Nothing to change." in rules("disable").err


def test_all_settings_are_a_settings_json(ada: Agent) -> None:
    assert json.loads(rules("settings").out) == DEFAULTS
    assert json.loads(rules("settings", "memory_rules.compression").out) == {"enabled": False, "threshold_mb": 50}


def test_a_settings_json_is_taken_whole(closed: Agent, tmp_path: Path) -> None:
    given = rule_changes.whole(closed) | {"mine": [1]}
    given["memory_rules"]["cleanup_guidance_days"] = 7
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(given))
    assert rules("settings", "--file", str(file)).code == 0
    assert json.loads(rules("settings").out) == given
    given["memory_rules"]["enabled"] = True
    assert "--yes" in rules("settings", "--file", "-", stdin=json.dumps(given).encode()).err
    assert not fresh(closed).memory_enabled
    assert rules("settings", "--file", "-", "--yes", stdin=json.dumps(given).encode()).code == 0
    assert fresh(closed).memory_enabled


def test_what_is_wrong_is_told_and_changes_nothing(ada: Agent) -> None:
    rows: list[tuple[tuple[str, ...], bytes]] = [
        (("settings", "memory_rules.nothing", "1"), b""),
        (("settings", "memory_rules.nothing"), b""),
        (("settings", "memory_rules.cleanup_guidance_days", "soon"), b""),
        (("settings", "memory_rules.enabled", "soon"), b""),
        (("settings", "--file", "-"), b"{"),
        (("settings", "--file", "-"), b"[]"),
        (("settings", "--file", "-"), b'{"memory_rules": {"enabled": "yes"}}'),
        (("settings", "--file", "-"), b"\xff"),
        (("settings", "x", "--file", "-"), b"{}"),
        (("enable", "--category", "nothing"), b""),
        (("enable", "--category", "topic", "--recording"), b""),
    ]
    before = last_entry(ada).seq
    for args, stdin in rows:
        failed(rules(*args, stdin=stdin), 2)
    failed(rules("settings", "--file", "/nothing/here"), 2, "no such file")
    assert last_entry(ada).seq == before


def test_what_is_neither_yes_nor_no_is_asked_again(ada: Agent) -> None:
    rules("disable", "--category", "topic")
    ran = at_a_terminal("maybe\nyo\ny\n", "enable", "--category", "topic")
    assert (ran.err.count("(y/n)"), "Changed, as entry" in ran.err) == (3, True)


def test_no_setting_commands_a_terminal(ada: Agent) -> None:
    given = json.dumps({"memory_rules": {}, "mine": "gnp\u202e.exe\x1b[31m"})
    assert rules("settings", "--file", "-", stdin=given.encode()).code == 0
    shown = rules("settings").out
    assert ("\u202e" in shown, "\x1b" in shown) == (False, False)
    assert json.loads(shown)["mine"] == "gnp\u202e.exe\x1b[31m"


# --- a key that is no setting, and which may have been meant

RECORDING = "memory_rules.auto_recording.enabled"
MEANT = {
    "memory_rules.auto_recordng.enabled": RECORDING,
    "auto_recording.enabled": RECORDING,
    "memory_rules.categories.tecnical.enabled": "memory_rules.categories.technical.enabled",
    "base_pth": "storage.base_path",
    "sailing": "",
    "x" * 100_000: "",
}


def test_what_may_have_been_meant() -> None:
    assert {key: suggest_setting.similar(key) for key in MEANT} == MEANT


def test_a_key_that_is_none_is_refused_with_what_may_have_been_meant(ada: Agent) -> None:
    for value in ([], ["false"]):
        meant = f"is not a setting. Did you mean {RECORDING}?"
        failed(rules("settings", "memory_rules.auto_recordng.enabled", *value), 2, meant)
        failed(rules("settings", "sailing", *value), 2, "is not a setting")


def test_a_file_is_taken_and_what_looks_mistyped_in_it_is_told(ada: Agent, tmp_path: Path) -> None:
    given = {"memory_rules": {"auto_recordng": {"enabled": True}, "sailing": {"x": 1}, "cleanup_guidance_dys": 3}}
    place = tmp_path / "settings.json"
    place.write_text(json.dumps(given))
    ran = rules("settings", "--file", str(place))
    assert ran.code == 0
    told = [line for line in ran.err.splitlines() if "is not a setting" in line]
    assert told == [
        f"{wrong} is not a setting. It is stored, but has no effect. Did you mean {right}?"
        for wrong, right in (
            ("memory_rules.auto_recordng", "memory_rules.auto_recording"),
            ("memory_rules.cleanup_guidance_dys", "memory_rules.cleanup_guidance_days"),
        )
    ]
    assert rule_changes.whole(fresh(ada))["memory_rules"]["sailing"] == {"x": 1}
