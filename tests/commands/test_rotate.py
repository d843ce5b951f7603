"""rotate_silo_keys: every silo is wrapped by the newest key, and no memory changes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from config import keyfiles
from config import keyring as module
from config.keyring import keyring
from memory.access import authority
from memory.consent import erasure, requests
from memory.models import Agent, Memory
from memory.silo import keys
from memory.silo.silo import forget_unwrapped
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import signed_update

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """A copy of the tests' keys, to which a test can add others."""
    for name in keyfiles.NAMES:
        shutil.copy(Path(django_settings.KEYS_DIR) / name, tmp_path / name)  # with its mode
    settings.KEYS_DIR = tmp_path
    yield tmp_path
    forget_keys()


def forget_keys() -> None:
    """As in a new process: the keyring is loaded once in a process."""
    module._load.cache_clear()
    forget_unwrapped()


def add_key() -> None:
    assert run("create_keys", "--add-silo-key").code == 0
    forget_keys()


def rotate() -> Ran:
    ran = run("rotate_silo_keys")
    forget_unwrapped()
    return ran


def newest() -> str:
    return keyring().silo[0].id


def wrapping_ids() -> set[str]:
    return {keys.wrapping_key_id(bytes(wrapped)) for wrapped in Agent.objects.values_list("wrapped_key", flat=True)}


@pytest.fixture
def filled(house: House) -> House:
    steps.remember(house.ada, f"{MARKER} one")
    steps.remember(house.bob, f"{MARKER} two")
    return house


def contents(house: House) -> list[str]:
    return [steps.says(agent, 1).content for agent in (house.ada, house.bob)]


CONTENTS = [f"{MARKER} one", f"{MARKER} two"]


def test_a_rotation_rewraps_every_key_and_changes_no_memory(filled: House) -> None:
    ran = rotate()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"0 keys rewrapped; silo key {newest()} now wraps every data key\n"
    add_key()
    assert wrapping_ids() != {newest()}
    assert contents(filled) == CONTENTS
    steps.remember(filled.ada, f"{MARKER} more")
    before = list(Memory.objects.order_by("pk").values())
    assert "older silo key" in str(steps.problems(filled.ada))
    assert rotate().out == f"2 keys rewrapped; silo key {newest()} now wraps every data key\n"
    assert wrapping_ids() == {newest()}
    assert list(Memory.objects.order_by("pk").values()) == before
    assert contents(filled) == CONTENTS
    assert steps.problems(filled.ada) == []


def test_a_data_key_from_before_a_rotation_is_named(filled: House) -> None:
    add_key()
    rotate()
    assert steps.problems(filled.ada) == []
    signed_update(Agent.objects.filter(pk=filled.ada.pk), wrapped_key=bytes(filled.ada.wrapped_key))
    assert any("older silo key" in str(problem) for problem in steps.problems(filled.ada))


def test_after_two_rotations_the_first_key_is_not_needed(filled: House, folder: Path) -> None:
    first = newest()
    for _ in range(2):
        add_key()
        rotate()
    assert len(keyring().silo) == 3
    (folder / "silo").write_text((folder / "silo").read_text().split()[0] + "\n")
    forget_keys()
    assert {key.id for key in keyring().silo} == wrapping_ids() != {first}
    assert contents(filled) == CONTENTS


def test_an_interrupted_rotation_is_completed_by_the_next(filled: House, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key()
    rewrap, done = keys.rewrap, []

    def interrupt_second(agent_id: int, wrapped: bytes) -> bytes:
        if done:
            raise KeyboardInterrupt
        done.append(agent_id)
        return rewrap(agent_id, wrapped)

    with monkeypatch.context() as patch:
        patch.setattr(keys, "rewrap", interrupt_second)
        failed(run("rotate_silo_keys"), 1, "interrupted")
    assert len(wrapping_ids()) == 2
    assert contents(filled) == CONTENTS
    assert rotate().out.startswith("1 keys rewrapped")
    assert wrapping_ids() == {newest()}
    assert contents(filled) == CONTENTS


def test_a_rotation_keeps_erased_agents_erased(filled: House) -> None:
    add_key()
    signed_update(Agent.objects.filter(pk=filled.bob.pk), wrapped_key=b"")
    assert rotate().out.startswith("1 keys rewrapped")
    assert not steps.fresh(filled.bob).wrapped_key


def test_a_row_that_sql_changed_is_not_rewrapped_and_is_counted(filled: House) -> None:
    """SQL may have put back the data key of an erased silo."""
    add_key()
    wrapped = bytes(steps.fresh(filled.ada).wrapped_key)
    for change in ({"steward": "eve@evil.test"}, {"wrapped_key": steps.fresh(filled.bob).wrapped_key}):
        Agent.objects.filter(pk=filled.ada.pk).update(**change)
        failed(rotate(), 1, "1 agent not rewrapped", "repair_authority")
        assert [authority.is_signed(steps.fresh(agent)) for agent in (filled.ada, filled.bob)] == [False, True]
    Agent.objects.filter(pk=filled.ada.pk).update(wrapped_key=wrapped)
    assert run("repair_authority", "acme/ada").code == 0
    assert rotate().out.startswith("1 keys rewrapped")


def test_an_erased_silo_whose_whole_row_sql_puts_back_is_not_rewrapped(filled: House) -> None:
    before = Agent.objects.filter(pk=filled.ada.pk).values().get()
    number = requests.ask_erasure(filled.ada, steps.PERSON, reason="ticket 17").number
    erasure.erase(steps.fresh(filled.ada), number, steps.ME)
    Agent.objects.filter(pk=before.pop("id")).update(**before)
    add_key()
    failed(rotate(), 1, "1 agent not rewrapped")
    assert bytes(steps.fresh(filled.ada).wrapped_key) == bytes(before["wrapped_key"])


def test_a_row_with_an_older_signature_is_not_signed_again(filled: House, folder: Path) -> None:
    """SQL and a former audit key could have changed it."""
    add_key()
    keyfiles.prepend_key(folder, "audit")
    forget_keys()
    failed(rotate(), 1, "2 agents not rewrapped", "rotate_audit_key")
    assert run("rotate_audit_key").code == 0
    assert rotate().out.startswith("2 keys rewrapped")


def test_an_erased_agent_does_not_keep_others_from_a_new_audit_key(filled: House, folder: Path) -> None:
    number = requests.ask_erasure(filled.ada, steps.PERSON, reason="ticket 17").number
    erasure.erase(steps.fresh(filled.ada), number, steps.ME)
    keyfiles.prepend_key(folder, "audit")
    forget_keys()
    assert run("rotate_audit_key").code == 0
    signed_with = set(Agent.objects.values_list("authority_key_id", flat=True))
    assert (signed_with, run("verify_audit", "--all").code) == ({keyring().audit[0].id}, 0)


def test_an_altered_key_stops_the_rotation_and_is_named(filled: House) -> None:
    add_key()
    wrapped = bytes(steps.fresh(filled.ada).wrapped_key)
    altered = wrapped[:-1] + bytes([wrapped[-1] ^ 1])
    signed_update(Agent.objects.filter(pk=filled.ada.pk), wrapped_key=altered)
    failed(run("rotate_silo_keys"), 1, f"agent {filled.ada.pk}", "cannot be decrypted")


def test_a_running_process_finds_a_key_that_another_process_added(filled: House, folder: Path) -> None:
    before = keyring().silo
    keyfiles.prepend_key(folder, "silo")
    added = module._keys(str(folder), "silo", "")[0]
    for agent in Agent.objects.all():
        wrapped = keys._wrap(added, agent.pk, keys.unwrap(agent.pk, bytes(agent.wrapped_key)))
        signed_update(Agent.objects.filter(pk=agent.pk), wrapped_key=wrapped)
    forget_unwrapped()
    assert keyring().silo == before
    assert contents(filled) == CONTENTS
    assert keyring().silo == (added, *before)


def test_a_process_keeps_its_keys_if_the_file_is_gone(filled: House, folder: Path) -> None:
    assert keyring().silo
    (folder / "silo").unlink()
    assert module.silo_key("00000000") is None
    assert contents(filled) == CONTENTS
