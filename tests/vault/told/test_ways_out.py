"""What a command says where it cannot do what it was asked: by names somebody typed, and with what can be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.models import Agent
from tests.commands.calling import failed
from tests.vault.test_commands import rules


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("init", "--vault", "/etc/memory"), "--vault: must lie under"),
        (("init", "--project-dir", "nowhere"), "--project-dir: is no folder"),
        (("record", "--prompt", "x", "--seconds", "-1"), "--seconds: must be a number"),
        (("record", "--prompt-file", "/dev/null"), "--prompt-file: is empty"),
        (("record", "--prompt", "x", "--tool", "y" * 65), "--tool: has 65 characters"),
        (("record", "--prompt", "x", "--session", "a b"), "--session: is up to 64 letters"),
        (("topic", "Tea", "--question", "x" * 1_001), "--question: "),
        (("store", "x" * 10_001), "TEXT: has 10,001 characters"),
        (("store", "x", "--tag", "y" * 65), "--tag: must each be"),
        (("store",), "TEXT: is needed"),
        (("retrieve", "tea", "--limit", "0"), "--limit: must be 1 or more"),
        (("retrieve", "tea", "--max-tokens", "-1"), "--max-tokens: must be 0 or more"),
        (("cleanup", "--discard", "all"), "--discard: must be memories"),
        (("analyze_git", "--project-dir", "nowhere"), "--project-dir: is no folder"),
    ],
)
def test_what_is_wrong_is_told_by_the_option_that_was_typed(
    ada: Agent, site: Path, args: tuple[str, ...], told: str
) -> None:
    ran = rules(*args)
    assert (ran.code, ran.err.startswith(f"error: {told}")) == (2, True), ran


def test_what_nobody_typed_is_told_by_its_own_name(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "..")
    assert failed(rules("record", "--prompt", "x"), 2).startswith("error: MEMORY_PROJECT: ")
