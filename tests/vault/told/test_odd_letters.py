"""Control characters and turned writing: in files and at a terminal they are seen, and an edit keeps them."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from memory.models import Agent
from tests.steps import remember
from tests.vault.test_commands import rules

TURNED = "gnp\u202e.exe\x1b[31m"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_is_private_is_shown_as_it_is_but_to_a_terminal(ada: Agent, vault: Path, is_terminal: bool) -> None:
    remember(ada, TURNED, category="personal")
    with mock.patch("memory.management.commands.vault.is_shown", return_value=is_terminal):
        shown = rules("show", "private/personal/000001.md").out
    assert (TURNED in shown) is not is_terminal
