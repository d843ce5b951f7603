from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from config import keyfiles
from config import keyring as module
from config.keyring import keyring
from memory.management.commands import rotate_silo_keys
from memory.models import Agent, Memory
from memory.silo import keys
from memory.silo.silo import forget_unwrapped
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Path:
    """The suite's keys, copied, so that more can be put beside them."""
    for name in keyfiles.NAMES:
        shutil.copy(Path(django_settings.KEYS_DIR) / name, tmp_path / name)  # its mode, too
    settings.KEYS_DIR = tmp_path
    return tmp_path


def add_key() -> None:
    """As an operator does it. The keyring is loaded once a process, so the process begins anew here."""
    assert run("create_keys", "--add-silo-key").code == 0
    begin_anew()


def begin_anew() -> None:
    module._load.cache_clear()
    forget_unwrapped()


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    yield
    begin_anew()


def rotate() -> Ran:
    ran = run("rotate_silo_keys")
    forget_unwrapped()
    return ran


def wrapped_by() -> set[str]:
    return {keys.wrapping_key_id(bytes(w)) for w in Agent.objects.values_list("wrapped_key", flat=True)}


@pytest.fixture
def told(house: House) -> House:
    steps.remember(house.ada, f"{MARKER} one")
    steps.remember(house.bob, f"{MARKER} two")
    return house


def both_open(house: House) -> bool:
    return steps.says(house.ada, 1).content == f"{MARKER} one" and steps.says(house.bob, 1).content == f"{MARKER} two"


def test_a_rotation_rewraps_every_key_and_touches_no_memory(told: House) -> None:
    ran = rotate()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"0 keys rewrapped; silo key {keyring().silo[0].id} now wraps every data key\n"
    add_key()
    assert wrapped_by() != {keyring().silo[0].id}
    assert both_open(told)
    steps.remember(told.ada, f"{MARKER} more")
    before = list(Memory.objects.order_by("pk").values())
    ran = rotate()
    assert ran.out == f"2 keys rewrapped; silo key {keyring().silo[0].id} now wraps every data key\n"
    assert wrapped_by() == {keyring().silo[0].id}
    assert list(Memory.objects.order_by("pk").values()) == before
    assert both_open(told)
    assert steps.problems(told.ada) == []


def test_rotating_twice_retires_the_first_key(told: House, folder: Path) -> None:
    first = keyring().silo[0].id
    add_key()
    rotate()
    add_key()
    assert len(keyring().silo) == 3
    rotate()
    (folder / "silo").write_text((folder / "silo").read_text().split()[0] + "\n")
    begin_anew()
    assert {key.id for key in keyring().silo} == wrapped_by() != {first}
    assert both_open(told)


def test_an_interrupted_rotation_is_taken_up_again(told: House, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key()
    rewrap, done = keys.rewrap, []

    def stops(agent_id: int, wrapped: bytes) -> bytes:
        if done:
            raise KeyboardInterrupt
        done.append(agent_id)
        return rewrap(agent_id, wrapped)

    with monkeypatch.context() as patch:
        patch.setattr(keys, "rewrap", stops)
        failed(run("rotate_silo_keys"), 1, "interrupted")
    assert len(wrapped_by()) == 2
    assert both_open(told)
    assert rotate().out.startswith("1 keys rewrapped")
    assert wrapped_by() == {keyring().silo[0].id}
    assert both_open(told)


def test_a_key_changed_meanwhile_is_left_alone(told: House, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key()
    rewrap = keys.rewrap

    def erased_meanwhile(agent_id: int, wrapped: bytes) -> bytes:
        Agent.objects.filter(pk=agent_id).update(wrapped_key=b"")
        return rewrap(agent_id, wrapped)

    monkeypatch.setattr(rotate_silo_keys.keys, "rewrap", erased_meanwhile)
    assert rotate().out.startswith("0 keys rewrapped")
    assert {bytes(w) for w in Agent.objects.values_list("wrapped_key", flat=True)} == {b""}


def test_an_erased_silo_is_passed_by(told: House) -> None:
    Agent.objects.filter(pk=told.bob.pk).update(wrapped_key=b"")
    add_key()
    assert rotate().out.startswith("1 keys rewrapped")


def test_an_altered_key_or_another_agents_stops_it_and_is_named(told: House) -> None:
    add_key()
    wrapped = bytes(steps.fresh(told.ada).wrapped_key)
    for altered in (wrapped[:-1] + bytes([wrapped[-1] ^ 1]), steps.fresh(told.bob).wrapped_key):
        Agent.objects.filter(pk=told.ada.pk).update(wrapped_key=altered)
        failed(run("rotate_silo_keys"), 1, f"agent {told.ada.pk}", "cannot be decrypted")


def test_a_running_process_finds_a_key_that_was_added_since(told: House, folder: Path) -> None:
    """The keyring here is the one from before; another process, with the new one, has rotated."""
    before = keyring().silo
    keyfiles.prepend_key(folder, "silo")
    newest = module._load.__wrapped__(*module._named()).silo[0]
    for agent in Agent.objects.all():
        fresh = keys._wrap(newest, agent.pk, keys.unwrap(agent.pk, bytes(agent.wrapped_key)))
        Agent.objects.filter(pk=agent.pk).update(wrapped_key=fresh)
    forget_unwrapped()
    assert keyring().silo == before
    assert both_open(told)
    assert keyring().silo == (newest, *before)


def test_an_unknown_key_does_not_cost_a_process_the_keys_it_has(told: House, folder: Path) -> None:
    assert keyring().silo
    (folder / "silo").unlink()
    assert module.silo_key("00000000") is None
    assert both_open(told)
