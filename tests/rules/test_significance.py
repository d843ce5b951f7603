"""The kind and the significance of an interaction, and whether it is recorded automatically (seed 004)."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from memory.policy import settings_document
from memory.recording.interactions import KINDS, LEVELS, is_worth_recording, kind_of, significance


def test_the_kind_follows_from_the_prompt_and_the_response() -> None:
    rows = {
        ("When does the ferry leave?", ""): "question",
        ("The ferry leaves at two, right?", ""): "question",
        ("Write a letter to Ann.", ""): "instruction",
        ("Can you rename the function?", ""): "instruction",
        ("Could you tell me why it fails?", ""): "question",
        ("Thanks, that helped!", ""): "feedback",
        ("No, the ferry leaves at 15:00.", ""): "correction",
        ("That's wrong. Can you look again?", ""): "correction",
        ("To clarify: I mean the night ferry.", ""): "clarification",
        ("Book the boat", "Do you mean the ferry or the yacht?"): "clarification",
        ("The ferry was late today.", "I see."): "statement",
        ("", ""): "statement",
    }
    assert {texts: kind_of(*texts) for texts in rows} == rows


def test_the_significance_follows_from_the_prompt_and_the_response() -> None:
    rows = {
        ("When does the ferry leave?", "At two."): "low",
        ("We decided on tea.", "Fine."): "medium",
        ("What is it?", "x" * 2_000): "medium",
        ("Fix this:\n```\nx = 1\n```", "Done."): "medium",
        ("Book it for Ann with Bob at 14:30 on 2026-11-22.", "Done."): "low",
        ("Please book it for Ann with Bob at 14:30 on 2026-11-22.", "Done."): "medium",
        ("No, from now on always use tabs.", "I will."): "high",
        ("Please remember that Ann prefers tea to coffee, at 14:30 and 16:15.", "Noted."): "high",
    }
    assert {texts: significance(*texts) for texts in rows} == rows


LOW, MEDIUM, HIGH = "When does the ferry leave?", "We decided on tea, Ann.", "No, from now on always use tabs."


def is_recorded(prompt: str, response: str = "", threshold: str = "low", minimum: int = 10) -> bool:
    recording = {"interaction_threshold": threshold, "min_interaction_length": minimum}
    rules = settings_document.checked({"memory_rules": {"auto_recording": recording}})
    return is_worth_recording(rules, prompt, response)


def test_the_threshold_and_the_minimum_length_of_the_prompt_are_settings() -> None:
    for threshold, expected in (("low", {LOW, MEDIUM, HIGH}), ("medium", {MEDIUM, HIGH}), ("high", {HIGH})):
        assert {prompt for prompt in (LOW, MEDIUM, HIGH) if is_recorded(prompt, threshold=threshold)} == expected
    assert is_recorded(LOW, minimum=26)
    assert not is_recorded(LOW, "x" * 100, minimum=27)
    assert not is_recorded(LOW + " " * 10, minimum=27)
    by_default = {prompt: is_worth_recording({}, prompt, "x" * 500) for prompt in (MEDIUM, LOW, "decided!")}
    assert by_default == {MEDIUM: True, LOW: False, "decided!": False}


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_interaction_has_a_kind_and_a_significance(prompt: str, response: str) -> None:
    assert kind_of(prompt, response) in KINDS
    assert significance(prompt, response) in LEVELS


def test_no_text_takes_long() -> None:
    for piece in ("we will ", "1-", "return ", "a ", "    "):
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        significance(text, text)
        assert time.process_time() - began < 3, piece
