"""Errors of commands name the field that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.models import Agent
from tests.commands.calling import failed
from tests.vault.test_commands import rules


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("init", "--vault", "/etc/memory"), "vault: must lie under"),
        (("init", "--project-dir", "nowhere"), "project-dir: is not a folder"),
        (("record", "--prompt", "x", "--seconds", "-1"), "response_seconds: must be a number"),
        (("record", "--prompt-file", "/dev/null"), "prompt: is empty"),
        (("record", "--prompt", "x", "--tool", "y" * 65), "tools: has 65 characters"),
        (("record", "--prompt", "x", "--session", "a b"), "session: is up to 64 letters"),
        (("topic", "Tea", "--question", "x" * 1_001), "questions: "),
        (("store", "x" * 10_001), "content: has 10,001 characters"),
        (("store", "x", "--tag", "y" * 65), "tags: must each be"),
        (("store",), "content: is missing"),
        (("retrieve", "tea", "--limit", "0"), "limit: must be 1 or more"),
        (("retrieve", "tea", "--max-tokens", "-1"), "max_tokens: must be 0 or more"),
        (("cleanup", "--discard", "all"), "discard: must be memories"),
        (("analyze_git", "--project-dir", "nowhere"), "project-dir: is not a folder"),
    ],
)
def test_an_error_names_the_field(ada: Agent, site: Path, args: tuple[str, ...], told: str) -> None:
    ran = rules(*args)
    assert (ran.code, ran.err.startswith(f"error: {told}")) == (2, True), ran


def test_a_variable_of_the_environment_is_named(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "..")
    assert failed(rules("record", "--prompt", "x"), 2).startswith("error: MEMORY_PROJECT: ")
