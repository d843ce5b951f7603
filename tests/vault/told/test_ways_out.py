"""What a command says where it cannot do what it was asked: by names somebody typed, and with what can be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.models import Agent
from memory.writing import operations
from tests.commands.calling import failed
from tests.steps import ME, says
from tests.vault.test_commands import rules


def test_a_file_whose_memory_changed_too_names_the_other_way_out(ada: Agent, vault: Path) -> None:
    file = Path(rules("store", "The ferry leaves at nine.", "--category", "technical").json["file"])
    file.write_text(file.read_text().replace("nine", "ten"))
    operations.revise(ada, 1, ME, content="The ferry leaves at noon.")
    failed(rules("index", "--take-in", "1"), 1, "Not taken in", "--leave 1", "Changed: 1.")
    assert rules("index", "--leave", "1").code == 0
    assert (says(ada, 1).content, "at noon" in file.read_text()) == ("The ferry leaves at noon.", True)


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
