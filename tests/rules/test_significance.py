"""What kind an interaction is, and whether it is worth recording (seed 004)."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory.policy import settings_document
from memory.recording.interactions import KINDS, LEVELS, is_worth_recording, kind_of, significance


def test_kinds() -> None:
    rows = [
        ("When does the ferry leave?", "", "question"),
        ("The ferry leaves at two, right?", "", "question"),
        ("Write a letter to Ann.", "", "instruction"),
        ("Can you rename the function?", "", "instruction"),
        ("Could you tell me why it fails?", "", "question"),
        ("Thanks, that helped!", "", "feedback"),
        ("No, the ferry leaves at 15:00.", "", "correction"),
        ("That's wrong. Can you look again?", "", "correction"),
        ("To clarify: I mean the night ferry.", "", "clarification"),
        ("Book the boat", "Do you mean the ferry or the yacht?", "clarification"),
        ("The ferry was late today.", "I see.", "statement"),
        ("", "", "statement"),
    ]
    assert [row for row in rows if kind_of(row[0], row[1]) != row[2]] == []


def test_levels() -> None:
    rows = [
        ("When does the ferry leave?", "At two.", "low"),
        ("We decided on tea.", "Fine.", "medium"),
        ("What is it?", "x" * 2_000, "medium"),
        ("Fix this:\n```\nx = 1\n```", "Done.", "medium"),
        ("Book it for Ann with Bob at 14:30 on 2026-11-22.", "Done.", "low"),
        ("Please book it for Ann with Bob at 14:30 on 2026-11-22.", "Done.", "medium"),
        ("No, from now on always use tabs.", "I will.", "high"),
        ("Please remember that Ann prefers tea to coffee, at 14:30 and 16:15.", "Noted.", "high"),
    ]
    assert [row for row in rows if significance(row[0], row[1]) != row[2]] == []


def settings(threshold: str, least: int = 10) -> dict[str, Any]:
    return settings_document.checked(
        {"memory_rules": {"auto_recording": {"interaction_threshold": threshold, "min_interaction_length": least}}}
    )


LOW, MEDIUM = "When does the ferry leave?", "We decided on tea, Ann."


def test_the_threshold() -> None:
    prompts = (LOW, MEDIUM, "No, from now on always use tabs.")
    worth = {
        threshold: [is_worth_recording(settings(threshold), prompt, "") for prompt in prompts]
        for threshold in ("low", "medium", "high")
    }
    assert worth == {"low": [True, True, True], "medium": [False, True, True], "high": [False, False, True]}


def test_the_least_length_is_of_the_prompt() -> None:
    assert is_worth_recording(settings("low", least=26), LOW, "")
    assert not is_worth_recording(settings("low", least=27), LOW, "x" * 100)
    assert not is_worth_recording(settings("low", least=27), LOW + " " * 10, "")


def test_by_default_it_is_medium_and_ten_characters() -> None:
    assert is_worth_recording({}, MEDIUM, "")
    assert not is_worth_recording({}, LOW, "")
    assert not is_worth_recording({}, "decided!", "x" * 5_000)


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_interaction_is_of_some_kind_and_level(prompt: str, response: str) -> None:
    assert kind_of(prompt, response) in KINDS
    assert significance(prompt, response) in LEVELS


def test_no_text_takes_long() -> None:
    for piece in ("we will ", "1-", "return ", "a ", "    "):
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        significance(text, text)
        assert time.process_time() - began < 3, piece
