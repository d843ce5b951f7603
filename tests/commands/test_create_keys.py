"""create_keys: files that only their owner can read, and no key that would replace another."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connections

from config.keyfiles import NAMES, new_key
from tests.commands.calling import Installation, failed, run
from tests.conftest import House


@pytest.fixture
def folder(db: None, settings: Any, tmp_path: Path) -> Path:
    settings.KEYS_DIR = tmp_path / "var" / "keys"
    return Path(settings.KEYS_DIR)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def write_new_keys(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / name).write_text(new_key())


def test_each_key_has_a_file_that_only_its_owner_can_read(folder: Path) -> None:
    ran = run("create_keys")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [f"made {folder / name}" for name in NAMES]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    secrets = {name: base64.b64decode(text, validate=False) for name, text in contents(folder).items()}
    assert {name: len(secret) for name, secret in secrets.items()} == dict.fromkeys(NAMES, 32) | {"django": 48}
    assert len(set(secrets.values())) == len(NAMES)
    assert not any(text.strip() in ran.err for text in contents(folder).values())


def test_only_missing_keys_are_created(folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    ran = run("create_keys")
    assert (ran.code, ran.out, ran.err, contents(folder)) == (0, "", "", before)
    (folder / "heads").unlink()
    assert run("create_keys").err == f"made {folder / 'heads'}\n"
    after = contents(folder)
    assert after.pop("heads") != before.pop("heads")
    assert after == before


def test_a_lost_key_that_agents_need_is_named_and_not_replaced(house: House, folder: Path, settings: Any) -> None:
    for name in ("silo", "audit", "pepper"):
        write_new_keys(folder)
        (folder / name).unlink()
        failed(run("create_keys"), 1, f"their {name} key is not in")
        assert not (folder / name).exists()
    for variable in ("SILO_KEYS", "PEPPER_KEY"):
        setattr(settings, variable, base64.b64encode(bytes(32)).decode())
    (folder / "audit").unlink()
    assert "silo" not in failed(run("create_keys"), 1, "their audit key is not in").split(str(folder))[0]


def test_a_file_without_a_readable_key_is_reported_and_kept(house: House, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "silo").touch()
    failed(run("create_keys"), 1, str(folder / "silo"), "has no readable key")
    (folder / "silo").unlink()
    (folder / "pepper").write_text("c2VjcmV0")
    failed(run("create_keys"), 2, "pepper key is not 32 bytes of base64", "PEPPER_KEY")
    assert (folder / "pepper").read_text() == "c2VjcmV0"
    for name in NAMES:
        (folder / name).write_bytes(b"\xff\xfe\x00secret")
    failed(run("verify_audit", "--all"), 2, "32 bytes of base64")


def test_an_added_silo_key_precedes_the_existing_ones(folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    (folder / ".silo.new").write_text("half a k")  # left by a crash
    ran = run("create_keys", "--add-silo-key")
    assert (ran.code, ran.out, "rotate_silo_keys" in ran.err) == (0, "", True)
    after = contents(folder)
    newest, *older = after.pop("silo").split()
    assert older == before.pop("silo").split()
    assert newest not in older
    assert after == before
    assert stat.S_IMODE((folder / "silo").stat().st_mode) == 0o600


def test_no_silo_key_is_added_to_the_keys_of_another_installation(house: House, folder: Path) -> None:
    write_new_keys(folder)
    failed(run("create_keys", "--add-silo-key"), 2, "not in the keyring")
    assert len((folder / "silo").read_text().split()) == 1


def test_no_silo_key_is_added_to_a_file_if_the_environment_has_the_keys(folder: Path, settings: Any) -> None:
    settings.SILO_KEYS = base64.b64encode(bytes(32)).decode()
    failed(run("create_keys", "--add-silo-key"), 2, "SILO_KEYS")
    assert not (folder / "silo").exists()


def test_no_key_is_created_if_the_database_does_not_answer(folder: Path) -> None:
    down = mock.Mock(side_effect=OperationalError("connection refused"))
    with mock.patch.object(type(connections["default"]), "cursor", down):
        failed(run("create_keys"), 1, "the database does not answer", "Start the database")
    assert not folder.exists()


def test_keys_are_created_if_there_is_no_database_yet(tmp_path: Path) -> None:
    ran = Installation(tmp_path).manage("create_keys", DATABASE_URL=f"sqlite:///{tmp_path}/later/db.sqlite3")
    assert (ran.code, len(ran.err.splitlines())) == (0, len(NAMES))


def test_a_folder_in_place_of_a_key_file_is_reported(service: Installation) -> None:
    silo = service.folder / "keys" / "silo"
    silo.unlink()
    silo.mkdir()
    failed(service.manage("create_keys"), 1, str(silo), "Is a directory")
    failed(service.manage("verify_audit", "--all"), 2, "silo key cannot be read")
