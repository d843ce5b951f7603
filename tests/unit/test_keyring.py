"""Keys by purpose, and the files they lie in."""

from __future__ import annotations

import copy
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_django import Settings

from config.checks import keys_are_there
from config.keyfiles import NAMES, create_key_file, new_key, prepend_key, read_key_file
from config.keyring import KeysMissing, keyring


def test_the_newest_key_comes_first(settings: Settings) -> None:
    newest, older = new_key(), new_key()
    settings.SILO_KEYS = newest
    alone = keyring().silo[0]
    settings.SILO_KEYS = f"{newest},{older}"
    assert keyring().silo[0] == alone
    assert len(keyring().silo) == 2


def test_secrets_are_not_printed() -> None:
    ring = keyring()
    assert ring.silo[0].secret.hex() not in repr(ring)
    assert repr(ring.silo[0].secret) not in repr(ring)
    key = ring.audit[0]
    assert (len(key.id), key.secret.hex()[:8] == key.id) == (8, False)


def test_a_missing_key_names_itself_and_how_to_make_it(settings: Settings, tmp_path: Path) -> None:
    assert keys_are_there() == []
    settings.KEYS_DIR = tmp_path
    assert [problem.id for problem in keys_are_there()] == ["palimpsest.E001"]
    with pytest.raises(KeysMissing, match=r"silo key is missing.*create_keys"):
        keyring()


@pytest.mark.parametrize("bad", ["x", "short", "AAAA", "?" * 44, ",", " , ", "c2hvcnQ=", "é" * 44])
def test_a_bad_key_is_refused_and_not_quoted(settings: Settings, bad: str) -> None:
    settings.AUDIT_KEY = bad
    with pytest.raises(KeysMissing) as caught:
        keyring()
    assert "audit key" in str(caught.value)
    assert bad == "," or bad not in str(caught.value)


def test_the_environment_wins_over_the_file(settings: Settings) -> None:
    of_the_file = keyring().pepper[0]
    settings.PEPPER_KEY = new_key()
    assert keyring().pepper[0] != of_the_file


@pytest.mark.parametrize("name", NAMES)
def test_a_key_file_is_for_its_owner_alone(tmp_path: Path, name: str) -> None:
    assert create_key_file(tmp_path / "keys", name)
    assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_an_existing_key_file_is_never_replaced(tmp_path: Path) -> None:
    create_key_file(tmp_path, "silo")
    before = (tmp_path / "silo").read_bytes()
    assert not create_key_file(tmp_path, "silo")
    assert (tmp_path / "silo").read_bytes() == before
    (tmp_path / "audit").symlink_to(tmp_path / "elsewhere")
    assert not create_key_file(tmp_path, "audit")
    assert not (tmp_path / "elsewhere").exists()


def test_a_new_key_goes_before_the_old_ones(tmp_path: Path) -> None:
    create_key_file(tmp_path, "silo")
    old = read_key_file(tmp_path, "silo")
    prepend_key(tmp_path, "silo")
    newest, *rest = read_key_file(tmp_path, "silo").split(",")
    assert rest == [old]
    assert newest != old
    assert stat.S_IMODE((tmp_path / "silo").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["silo"]


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_keys_are_not_to_be_pickled(leak: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        leak(keyring().silo[0])
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(keyring())
