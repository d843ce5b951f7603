"""Control characters and turned writing: in files and at a terminal they are seen, and an edit keeps them."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from memory.models import Agent
from tests.steps import remember, says
from tests.vault.test_commands import rules

TURNED = "gnp\u202e.exe\x1b[31m"


def test_an_edit_keeps_what_cannot_be_seen(ada: Agent, vault: Path) -> None:
    remember(ada, f"Open {TURNED} at nine.", category="technical", tags=["a, b", f"t{TURNED}"])
    [file] = (vault / "common" / "technical").iterdir()
    text = file.read_text()
    assert (TURNED in text, "gnp\\u{202E}.exe\\u{1B}[31m at nine" in text, file.name.isprintable()) == (
        False,
        True,
        True,
    )
    file.write_text(text.replace("nine", "ten"))
    assert rules("index", "--take-in", "1").code == 0
    assert says(ada, 1).content == f"Open {TURNED} at ten."
    assert says(ada, 1).tags == ("a, b", f"t{TURNED}")
    file.write_text(file.read_text().replace("a\\, b, ", "a\\, c, d, "))
    assert rules("index", "--take-in", "1").code == 0
    assert says(ada, 1).tags == ("a, c", "d", f"t{TURNED}")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_is_private_is_shown_as_it_is_but_to_a_terminal(ada: Agent, vault: Path, is_terminal: bool) -> None:
    remember(ada, TURNED, category="personal")
    with mock.patch("memory.management.rules.keeping.is_shown", return_value=is_terminal):
        shown = rules("show", "private/personal/000001.md").out
    assert (TURNED in shown) is not is_terminal
