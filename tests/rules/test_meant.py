"""A key of the settings that is none, and which may have been meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.agents import rule_changes
from memory.models import Agent
from memory.policy import suggest_setting
from tests.commands.calling import failed, run
from tests.steps import fresh

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
    assert {key: suggest_setting.meant(key) for key in MEANT} == MEANT


@pytest.mark.parametrize("value", [[], ["false"]])
def test_a_key_that_is_none_is_refused_with_what_may_have_been_meant(ada: Agent, value: list[str]) -> None:
    failed(
        run("rules", "settings", "acme/ada", "memory_rules.auto_recordng.enabled", *value),
        2,
        f"is no setting; did you mean {RECORDING}?",
    )
    failed(run("rules", "settings", "acme/ada", "sailing", *value), 2, "is no setting")


def test_a_file_is_taken_and_what_looks_mistyped_in_it_is_told(ada: Agent, tmp_path: Path) -> None:
    given = {"memory_rules": {"auto_recordng": {"enabled": True}, "sailing": {"x": 1}, "cleanup_guidance_dys": 3}}
    place = tmp_path / "settings.json"
    place.write_text(json.dumps(given))
    ran = run("rules", "settings", "acme/ada", "--file", str(place))
    assert ran.code == 0
    told = [line for line in ran.err.splitlines() if "is no setting" in line]
    assert told == [
        f"{wrong} is no setting, and is kept as it is. Did you mean {right}?"
        for wrong, right in (
            ("memory_rules.auto_recordng", "memory_rules.auto_recording"),
            ("memory_rules.cleanup_guidance_dys", "memory_rules.cleanup_guidance_days"),
        )
    ]
    assert rule_changes.whole(fresh(ada))["memory_rules"]["sailing"] == {"x": 1}
