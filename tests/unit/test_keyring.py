"""Keys by purpose, and their files."""

import copy
import pickle
from pathlib import Path

import pytest
from pytest_django import Settings

from config.checks import keys_are_there
from config.keyfiles import create_key_file, new_key
from config.keyring import KeysMissing, keyring


def test_the_newest_key_comes_first_and_the_environment_replaces_the_file(settings: Settings) -> None:
    file_key, newest, older = keyring().silo[0], new_key(), new_key()
    settings.SILO_KEYS = newest
    [only] = keyring().silo
    assert only != file_key
    settings.SILO_KEYS = f"{newest},{older}"
    assert (keyring().silo[0], len(keyring().silo)) == (only, 2)


def test_keys_cannot_be_printed_copied_or_pickled() -> None:
    ring = keyring()
    key = ring.silo[0]
    assert key.secret.hex() not in repr(ring)
    assert repr(key.secret) not in repr(ring)
    assert (len(key.id), key.secret.hex()[:8] == key.id) == (8, False)
    for leak, secret in ((pickle.dumps, ring), (pickle.dumps, key), (copy.copy, key), (copy.deepcopy, key)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            leak(secret)


def test_a_missing_key_names_itself_and_the_command_that_creates_it(settings: Settings, tmp_path: Path) -> None:
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


def test_a_symlink_in_place_of_a_key_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit").symlink_to(tmp_path / "target")
    assert not create_key_file(tmp_path, "audit")
    assert not (tmp_path / "target").exists()
