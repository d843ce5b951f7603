"""Faults that stop the service from starting."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from audit.checks import audit_key_exists, triggers_exist
from config import checks, environment
from config.keyfiles import NAMES, create_key_file, new_key
from memory.models import Agent
from memory.silo.checks import silos_open
from memory.silo.silo import forget_unwrapped

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def problems() -> list[str | None]:
    return [check.id for check in silos_open(["default"]) + triggers_exist(["default"])]


def refuses_to_start(message: str) -> bool:
    with pytest.raises(ImproperlyConfigured, match=message):
        checks.require_sound()
    return True


def test_without_the_key_of_a_silo_the_service_does_not_start(ada: Agent, settings: Any) -> None:
    settings.SILO_KEYS = new_key()
    forget_unwrapped()
    assert refuses_to_start("is not in the keyring")


def test_one_agent_under_each_key_is_checked(ada: Agent, bob: Agent) -> None:
    other = bytes(ada.wrapped_key[:1]) + b"00000000" + bytes(ada.wrapped_key[9:])
    Agent.objects.filter(pk=bob.pk).update(wrapped_key=other)
    assert problems() == ["palimpsest.E002"]


def test_an_altered_data_key_is_only_a_warning(ada: Agent) -> None:
    wrapped = bytes(ada.wrapped_key)
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    assert problems() == ["palimpsest.W003"]
    checks.require_sound()


def test_without_a_trigger_the_service_does_not_start(ada: Agent) -> None:
    on = " ON audit_change" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER audit_change_no_update{on}")
    assert refuses_to_start("audit_change_no_update")


def test_without_the_audit_key_the_service_does_not_start(ada: Agent, settings: Any) -> None:
    settings.AUDIT_KEY = new_key()
    assert refuses_to_start(r"newest audit entry.*not in the keyring")
    assert [check.id for check in audit_key_exists(["default"])] == ["palimpsest.E006"]
    assert audit_key_exists() == []


@pytest.mark.parametrize(("name", "mode"), [("silo", 0o640), ("heads", 0o604), ("", 0o770)])
def test_keys_that_others_can_read_are_a_warning(settings: Any, tmp_path: Path, name: str, mode: int) -> None:
    folder = tmp_path / "keys"
    for each in NAMES:
        create_key_file(folder, each)
    settings.KEYS_DIR = folder
    assert checks.keys_are_private() == []
    (folder / name).chmod(mode)
    [warning] = checks.keys_are_private()
    assert (warning.id, warning.is_serious()) == ("palimpsest.W002", False)
    assert str(folder / name) in warning.msg


def test_a_key_that_cannot_be_read_names_the_right_chmod(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("config.keyring.read_key_file", refuse)
    settings.KEYS_DIR = "/keys"
    [error] = checks.keys_are_there()
    assert "(Permission denied)" in error.msg
    assert "run 'chmod u=rwX,go= /keys /keys/silo'" in error.msg
    monkeypatch.setattr("config.environment.read_key_file", refuse)
    with pytest.raises(ImproperlyConfigured, match="chmod u=rwX,go= /keys /keys/django"):
        environment.secret_key("NOT_SET", Path("/keys"))


def test_new_files_are_private_and_there_are_no_core_dumps(settings: Any) -> None:
    """Set by config/settings.py, so for the web processes, the worker and every command."""
    show = "import os, resource, django.conf as c; c.settings.DEBUG; os.umask(7); print(resource.getrlimit(4))"
    umask = "import os, django.conf as c; c.settings.DEBUG; print(os.umask(0))"
    for code, out in ((show, "(0, 0)"), (umask, str(0o077))):
        command = f"umask 000; {sys.executable} -c '{code}'"
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
        ran = subprocess.run(
            ["sh", "-c", command], cwd=settings.BASE_DIR, env=environment, capture_output=True, check=True
        )
        assert ran.stdout.decode().strip() == out


def test_with_an_unusable_setting_the_service_does_not_start(settings: Any) -> None:
    checks.require_sound()
    positive = ("QUEUE_WORKERS", "WEB_WORKERS", "WEB_THREADS", "SWEEP_MINUTES", "SWEEP_AGENTS", "BATCH_TOKENS")
    wrong = [(name, 0) for name in (*positive, "ASKS_PER_PERSON", "ASKS_PER_AGENT", "MODEL_CALL_SECONDS")]
    for name, value in [*wrong, ("TASK_SECONDS", 300), ("LEASE_SECONDS", 300), ("TOKEN_COUNTER", "abacus")]:
        before = getattr(settings, name)
        setattr(settings, name, value)
        assert refuses_to_start(name)
        setattr(settings, name, before)
