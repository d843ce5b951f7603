"""No file of a vault shows a secret; the silo keeps it, and a person's edit around it loses none."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from memory.models import Agent, VaultFile
from memory.vault import repair
from memory.writing import operations
from tests.rules.talking import settings as set_rules
from tests.steps import ME, remember, says
from tests.vault.tree import differ, the_one

SECRET, OTHER = "hunter2-Kj81-zz", "Xy77-quokka-4"
SAID = f"The boat's password: {SECRET}\nThe harbour's password: {OTHER}\nThe ferry leaves at 14:30."


@pytest.fixture
def boat(ada: Agent) -> int:
    [number] = remember(ada, SAID, category="technical", tags=["times", f"password: {SECRET}"])
    return number


def all_said(vault: Path) -> str:
    return "\n".join([*map(str, vault.rglob("*")), *(each.read_text() for each in vault.rglob("*.md"))])


def test_a_file_shows_no_secret_and_the_silo_keeps_it(ada: Agent, boat: int, vault: Path) -> None:
    assert says(ada, boat).content == SAID
    assert "[masked: password]" in the_one(vault).read_text()
    assert SECRET not in all_said(vault)
    assert OTHER not in all_said(vault)
    assert differ(ada) == []


def test_no_name_of_a_file_or_line_of_an_index_shows_one(ada: Agent, vault: Path) -> None:
    remember(ada, "ghp_" + "a1B2c3D4" * 4 + "wxyz is the token of the crane", category="technical")
    with mock.patch("memory.policy.paths.require_names"):  # as one was stored before such names were refused
        remember(ada, "open it", category="credentials", tags=["service:ghp_" + "a1B2c3D4" * 4 + "wxyz"])
    said = all_said(vault).lower()
    assert len(list(vault.rglob("*.md"))) > 2
    assert "a1b2c3d4" not in said


def test_a_vault_masks_nothing_until_a_person_says_so_again(ada: Agent, vault: Path) -> None:
    set_rules(ada, capture_settings__sensitive_data_masking=False)
    ada.refresh_from_db()
    remember(ada, SAID, category="technical")
    assert SECRET in the_one(vault).read_text()
    set_rules(ada, capture_settings__sensitive_data_masking=True)
    assert SECRET not in the_one(vault).read_text()
    assert differ(ada) == []


def test_a_secret_after_a_crash_is_known_again(ada: Agent, boat: int, vault: Path) -> None:
    VaultFile.objects.filter(agent=ada).delete()
    operations.revise(ada, boat, ME, tags=["times"])
    repair.repair(ada)
    assert differ(ada) == []
    assert SECRET not in all_said(vault)
