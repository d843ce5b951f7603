"""What keeps the service from starting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from audit.checks import audit_key_exists, triggers_exist
from config import checks
from config.keyfiles import NAMES, create_key_file, new_key
from memory.models import Agent
from memory.silo.checks import silos_open
from memory.silo.silo import forget_unwrapped

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def problems() -> list[str | None]:
    return [check.id for check in silos_open(["default"]) + triggers_exist(["default"])]


def test_a_silo_that_no_key_opens_keeps_it_from_starting(ada: Agent, settings: object) -> None:
    settings.SILO_KEYS = new_key()  # type: ignore[attr-defined]
    forget_unwrapped()
    with pytest.raises(checks.RefusesToStart, match="is not in the keyring"):
        checks.require_sound()


def test_one_agent_under_each_key_is_tried(ada: Agent, bob: Agent) -> None:
    other = bytes(ada.wrapped_key[:1]) + b"00000000" + bytes(ada.wrapped_key[9:])
    Agent.objects.filter(pk=bob.pk).update(wrapped_key=other)
    assert problems() == ["palimpsest.E002"]


def test_a_data_key_that_was_altered_is_its_agents_trouble_alone(ada: Agent) -> None:
    wrapped = bytes(ada.wrapped_key)
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    assert problems() == ["palimpsest.W003"]
    checks.require_sound()


def test_a_missing_trigger_keeps_it_from_starting(ada: Agent) -> None:
    on = " ON audit_change" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER audit_change_no_update{on}")
    with pytest.raises(checks.RefusesToStart, match="audit_change_no_update"):
        checks.require_sound()


def test_a_replaced_audit_key_keeps_it_from_starting(ada: Agent, settings: object) -> None:
    settings.AUDIT_KEY = new_key()  # type: ignore[attr-defined]
    with pytest.raises(checks.RefusesToStart, match=r"newest audit entry.*not in the keyring"):
        checks.require_sound()
    assert [check.id for check in audit_key_exists(["default"])] == ["palimpsest.E006"]
    assert audit_key_exists() == []


@pytest.mark.parametrize(("name", "mode"), [("silo", 0o640), ("heads", 0o604), ("", 0o770)])
def test_keys_open_to_others_are_warned_of(settings: object, tmp_path: Path, name: str, mode: int) -> None:
    folder = tmp_path / "keys"
    for each in NAMES:
        create_key_file(folder, each)
    settings.KEYS_DIR = folder  # type: ignore[attr-defined]
    assert checks.keys_are_private() == []
    (folder / name).chmod(mode)
    [warning] = checks.keys_are_private()
    assert (warning.id, warning.is_serious()) == ("palimpsest.W002", False)
    assert str(folder / name) in warning.msg


def test_a_setting_by_which_nothing_could_be_done_keeps_it_from_starting(settings: Any) -> None:
    checks.require_sound()
    above_nothing = ("QUEUE_WORKERS", "WEB_WORKERS", "WEB_THREADS", "SWEEP_MINUTES", "SWEEP_AGENTS")
    wrong = [(name, 0) for name in (*above_nothing, "ASKS_PER_PERSON", "ASKS_PER_AGENT", "BATCH_TOKENS")]
    wrong += [("TASK_SECONDS", 300), ("LEASE_SECONDS", 300), ("MODEL_CALL_SECONDS", 0), ("TOKEN_COUNTER", "abacus")]
    for name, value in wrong:
        before = getattr(settings, name)
        setattr(settings, name, value)
        with pytest.raises(checks.RefusesToStart, match=name):
            checks.require_sound()
        setattr(settings, name, before)
