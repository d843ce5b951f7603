from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections

from config.keyfiles import NAMES, new_key
from tests.commands.calling import Installation, failed, run
from tests.conftest import House


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.KEYS_DIR = tmp_path / "var" / "keys"
    return Path(settings.KEYS_DIR)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_makes_a_file_for_each_key_that_its_owner_alone_can_read(db: None, folder: Path) -> None:
    ran = run("create_keys")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [f"made {folder / name}" for name in NAMES]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    secrets = {name: base64.b64decode(text, validate=False) for name, text in contents(folder).items()}
    assert {name: len(secret) for name, secret in secrets.items()} == dict.fromkeys(NAMES, 32) | {"django": 48}
    assert len(set(secrets.values())) == len(NAMES)
    assert not any(text.strip() in ran.out + ran.err for text in contents(folder).values())


def test_makes_what_is_missing_and_never_replaces_a_key(db: None, folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    ran = run("create_keys")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert contents(folder) == before
    (folder / "heads").unlink()
    assert run("create_keys").err == f"made {folder / 'heads'}\n"
    after = contents(folder)
    assert after.pop("heads") != before.pop("heads")
    assert after == before


def test_makes_not_even_one_new_key_where_agents_need_it(house: House, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("silo", "audit", "pepper"):
        for other in NAMES:
            (folder / other).write_text(new_key())
        (folder / name).unlink()
        failed(run("create_keys"), 1, f"their {name} key is not in")
        assert not (folder / name).exists()


def test_says_which_key_is_gone(house: House, folder: Path, settings: Any) -> None:
    for variable in ("SILO_KEYS", "PEPPER_KEY"):
        setattr(settings, variable, base64.b64encode(bytes(32)).decode())
    line = failed(run("create_keys"), 1, "their audit key is not in")
    assert "silo" not in line.split(str(folder))[0]


def test_a_file_without_a_key_is_told_and_kept(db: None, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "silo").touch()
    failed(run("create_keys"), 1, str(folder / "silo"), "has no readable key")
    (folder / "silo").unlink()
    (folder / "pepper").write_text("c2VjcmV0")
    failed(run("create_keys"), 2, "pepper key is not 32 bytes of base64", "PEPPER_KEY")
    assert (folder / "pepper").read_text() == "c2VjcmV0"


def test_a_key_file_that_is_no_text_is_told(house: House, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(b"\xff\xfe\x00secret")
    failed(run("verify_audit", "--all"), 2, "32 bytes of base64")


def test_an_added_silo_key_comes_before_the_present_ones(db: None, folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    ran = run("create_keys", "--add-silo-key")
    assert (ran.code, ran.out) == (0, "")
    assert "rotate_silo_keys" in ran.err
    after = contents(folder)
    newest, *older = after.pop("silo").split()
    assert older == before.pop("silo").split()
    assert newest not in older
    assert after == before
    assert stat.S_IMODE((folder / "silo").stat().st_mode) == 0o600


def test_no_silo_key_is_added_to_another_installations_keys(house: House, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(new_key())
    failed(run("create_keys", "--add-silo-key"), 2, "not in the keyring")
    assert len((folder / "silo").read_text().split()) == 1


def test_a_draft_that_a_crash_left_is_no_obstacle(db: None, folder: Path) -> None:
    run("create_keys")
    (folder / ".silo.new").write_text("half a k")
    assert run("create_keys", "--add-silo-key").code == 0
    assert len((folder / "silo").read_text().split()) == 2
    assert sorted(file.name for file in folder.iterdir()) == sorted(NAMES)


def test_no_silo_key_is_added_to_a_file_that_the_environment_overrules(db: None, folder: Path, settings: Any) -> None:
    settings.SILO_KEYS = base64.b64encode(bytes(32)).decode()
    failed(run("create_keys", "--add-silo-key"), 2, "SILO_KEYS")
    assert not (folder / "silo").exists()


def lose_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: Any, **__: Any) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr(type(connections["default"]), "cursor", down)


def test_no_key_is_made_where_the_database_cannot_be_asked(
    db: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        lose_the_database(patch)
        failed(run("create_keys"), 1, "the database does not answer", "Start the database")
    assert not folder.exists()


def test_a_first_run_has_no_database_to_ask(tmp_path: Path) -> None:
    ran = Installation(tmp_path).manage("create_keys", DATABASE_URL=f"sqlite:///{tmp_path}/later/db.sqlite3")
    assert (ran.code, len(ran.err.splitlines())) == (0, len(NAMES))


def test_a_folder_in_a_key_files_place_is_told(service: Installation) -> None:
    silo = service.folder / "keys" / "silo"
    silo.unlink()
    silo.mkdir()
    failed(service.manage("create_keys"), 1, str(silo), "Is a directory")
    failed(service.manage("verify_audit", "--all"), 2, "silo key cannot be read")
