"""Concurrent writers of a vault, and a person who edits its files: no one waits forever, and no edit is lost."""

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connections

from memory.agents import lifecycle
from memory.errors import MemoryFault
from memory.models import Agent, Vault, VaultFile
from memory.vault import comparing, disk
from memory.vault import writer as vault_writer
from memory.writing import operations
from memory.writing.edits import locked
from tests.conftest import OPERATOR
from tests.fault import writer
from tests.fault.agreement import differences
from tests.fault.test_writers import assert_whole, at_once, outputs, start
from tests.steps import ME, PERSON, fresh, remember, says
from tests.vault.tree import in_clear

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

THREADS, PROCESSES, EDITS = 4, 2, 12


@pytest.fixture
def root(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.setenv("VAULT_ROOTS", str(tmp_path))  # for other processes
    return tmp_path


def create(root: Path, slug: str) -> Agent:
    """An agent with a vault."""
    return lifecycle.create("acme", slug, model="builtin/dedupe", actor=OPERATOR, vault_path=str(root / slug))[0]


@pytest.fixture
def eve(root: Path, transactional_db: None) -> Agent:
    return create(root, "eve")


@pytest.fixture
def one(eve: Agent) -> tuple[int, Path]:
    """The number and the file of eve's only memory."""
    [number] = remember(eve, "memory", category="technical")
    [path] = files(eve)
    return number, path


def files(agent: Agent) -> list[Path]:
    """The files of memories in every folder."""
    return [path for path in Path(agent.vault_path).rglob("*.md") if path.name != "index.md"]


def assert_agrees(agent: Agent, edited: Collection[int] = ()) -> None:
    """Silo and files agree, except for files that a person edited."""
    assert differences(fresh(agent), edited=edited) == []
    assert not list(Path(agent.vault_path).rglob(f"{disk.NEW}*"))
    assert_whole(agent)


def assert_same(*agents: Agent) -> None:
    """After a sync the vaults have no difference."""
    for agent in agents:
        vault_writer.try_sync(agent.pk)
        assert comparing.whole(fresh(agent)).differences == []
        assert_agrees(agent)


def repair(agent: Agent) -> None:
    """Repair the vault; only edits and copies of a person are left."""
    left = comparing.repair(fresh(agent)).left
    assert {each.kind for each in left} <= {comparing.EDITED, comparing.COPY}
    assert Vault.objects.get(agent_id=agent.pk).fault == ""
    assert_agrees(agent, [each.number for each in left if each.kind == comparing.EDITED])


class Person(threading.Thread):
    """Edits files at random, with an editor that appends and with one that replaces the file."""

    def __init__(self, agent: Agent, seed: int = 1) -> None:
        super().__init__()
        self.agent, self.dice, self.is_over = agent, random.Random(seed), threading.Event()
        self.marks: list[str] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            found = files(self.agent)
            if found:
                self.write(self.dice.choice(found), f"by hand {len(self.marks)}.")
            time.sleep(self.dice.uniform(0, 0.01))

    def write(self, path: Path, mark: str) -> None:
        try:
            if self.dice.random() < 0.5:
                number = os.open(path, os.O_WRONLY | os.O_APPEND)
                time.sleep(self.dice.choice([0, 0.002]))
                os.write(number, mark.encode())
                os.close(number)
            else:
                new = path.with_name("editor.tmp")
                new.write_bytes(path.read_bytes() + mark.encode())
                new.replace(path)
        except FileNotFoundError:  # the file was moved
            return
        self.marks.append(mark)

    def lost(self) -> list[str]:
        contents = [in_clear(self.agent, path.read_bytes()) for path in files(self.agent)]
        return [mark for mark in self.marks if not any(mark.encode() in data for data in contents)]


@contextmanager
def editing(person: Person) -> Iterator[None]:
    """A person edits meanwhile. Nothing of that is lost, neither before a repair nor after it."""
    person.start()
    try:
        yield
    finally:
        person.is_over.set()
        person.join()
    assert person.lost() == []
    repair(person.agent)
    assert person.lost() == []


def edits(agent: Agent) -> list[Callable[[], list[int]]]:
    return [lambda seed=seed: writer.edits(agent.pk, EDITS, seed) for seed in range(THREADS)]


def test_threads_and_processes_at_one_vault(eve: Agent) -> None:
    assert [len(each) for each in at_once(*edits(eve))] == [EDITS] * THREADS
    assert_same(eve)
    made = outputs([start(eve.pk, EDITS, seed) for seed in range(PROCESSES)])
    assert [len(each) for each in made] == [EDITS] * PROCESSES
    assert_same(eve)


def test_concurrent_edits_of_a_person_are_not_lost(eve: Agent) -> None:
    remember(eve, *(f"memory {nth}" for nth in range(6)), category="technical")
    person = Person(eve)
    processes = [start(eve.pk, EDITS, seed) for seed in range(PROCESSES)]
    with editing(person):
        at_once(*edits(eve))
        assert all(outputs(processes))
    assert len(person.marks) > 10


def test_a_person_revisions_and_repairs_edit_the_same_file(eve: Agent, one: tuple[int, Path]) -> None:
    def revise(word: str) -> None:
        for nth in range(EDITS):
            operations.revise(eve, one[0], ME, content=f"{word} {nth}")

    def repair_often() -> None:
        for _ in range(EDITS):
            try:
                comparing.repair(fresh(eve))
            except MemoryFault:
                time.sleep(0.01)

    with editing(Person(eve, seed=2)):
        assert at_once(lambda: revise("one"), lambda: revise("other"), repair_often) == [None] * 3


def test_repairs_during_edits(eve: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the lock may be held longer than usual."""
    monkeypatch.setattr("memory.vault.base.PATIENCE", 30)

    def repair_often() -> None:
        for _ in range(4):
            comparing.repair(fresh(eve))

    results = at_once(*edits(eve), repair_often, repair_often)
    assert not [each for each in results if isinstance(each, Exception)]
    repair(eve)
    assert comparing.whole(fresh(eve)).differences == []


def test_edits_of_two_agents_with_vaults_stay_separate(eve: Agent, root: Path) -> None:
    fay = create(root, "fay")
    at_once(*edits(eve)[:2], *edits(fay)[:2])
    assert_same(eve, fay)


def test_a_locked_vault_does_not_block_an_edit_forever(eve: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds the edit succeeds without its file. The vault has a fault until the next sync."""
    monkeypatch.setattr("memory.vault.base.PATIENCE", 0.3)
    began = time.monotonic()
    other = threading.Thread(target=lambda: (remember(eve, "held up"), connections.close_all()))
    with vault_writer.opened(eve):
        other.start()
        other.join(timeout=10)
        assert not other.is_alive()
    assert 0.3 <= time.monotonic() - began < 5
    assert says(eve, 1).content == "held up"
    assert Vault.objects.get(agent_id=eve.pk).fault == "is locked by another program"
    vault_writer.catch_up()
    repair(eve)


@pytest.mark.postgresql
def test_a_sync_stores_its_rows_while_the_agent_is_locked(eve: Agent, one: tuple[int, Path]) -> None:
    """A claim locked the agent, and then the vault: a deadlock with a sync, which locks the vault first."""
    VaultFile.objects.all().delete()
    vault_writer.reset(eve)
    with locked(eve):
        other = threading.Thread(target=lambda: (vault_writer.try_sync(eve.pk), connections.close_all()))
        other.start()
        other.join(timeout=10)
        assert (other.is_alive(), VaultFile.objects.count()) == (False, 1)


def test_a_locked_vault_does_not_block_other_vaults(eve: Agent, root: Path) -> None:
    fay = create(root, "fay")
    began = time.monotonic()
    with vault_writer.opened(eve):
        remember(fay, "of fay")
    assert time.monotonic() - began < 5
    assert [path.read_text().count("of fay") > 0 for path in files(fay)] == [True]


def test_locked_vaults_take_turns(eve: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.vault.base.PATIENCE", 0.01)
    monkeypatch.setattr(vault_writer, "MOST_SECONDS", 0, raising=False)
    fay, tried = create(root, "fay"), []
    with vault_writer.opened(eve), vault_writer.opened(fay):
        for agent in (eve, fay):
            remember(agent, "tea")
        for _ in range(4):
            vault_writer.catch_up()
            tried.append(Vault.objects.latest("fault_at").agent_id)
    assert tried == [eve.pk, fay.pk] * 2


def test_another_process_waits_for_the_lock(eve: Agent) -> None:
    with vault_writer.opened(eve):
        process = start(eve.pk, 1, 1)
        time.sleep(1.5)
    assert outputs([process])
    vault_writer.try_sync(eve.pk)
    assert_agrees(eve)


def at_replace(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Act just before the writer replaces the first file."""
    exchange, done = disk.Folder.exchange, []

    def act_first(folder: disk.Folder, name: str, other: str) -> bool:
        if not done:
            done.append(act())
        return exchange(folder, name, other)

    monkeypatch.setattr(disk.Folder, "exchange", act_first)


def test_a_file_that_a_person_has_open_is_not_replaced(eve: Agent, one: tuple[int, Path]) -> None:
    number, path = one
    with path.open("a") as file:
        operations.revise(eve, number, PERSON, content="changed")
        assert "changed" not in path.read_text()
        assert Vault.objects.get().fault == "another program is writing to a file"
        file.write("by hand")
    vault_writer.catch_up()
    assert Vault.objects.get().fault == ""
    assert any("by hand" in each.read_text() for each in files(eve))
    assert [each.kind for each in comparing.whole(fresh(eve)).differences] == [comparing.COPY]
    assert "changed" in path.read_text()


def test_the_writer_waits_for_a_person_who_opens_the_file_just_before(
    eve: Agent, one: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, path = one

    def open_file() -> None:
        file = path.open("a")
        threading.Timer(0.1, lambda: (file.write("by hand"), file.close())).start()

    at_replace(monkeypatch, open_file)
    operations.revise(eve, number, PERSON, content="changed")
    assert "changed" in path.read_text()
    assert sorted("by hand" in each.read_text() for each in files(eve)) == [False, True]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_that_a_person_replaces_just_before_the_writer_is_kept(
    eve: Agent, one: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    number, path = one
    if not can_exchange:  # as on a file system without this operation
        monkeypatch.setattr("memory.run_log.files._RENAME", None)
    at_replace(monkeypatch, lambda: path.with_name("editor.tmp").replace(path))
    path.with_name("editor.tmp").write_bytes(path.read_bytes() + b"by hand")
    operations.revise(eve, number, PERSON, content="changed")
    assert "changed" in path.read_text()
    assert sorted("by hand" in each.read_text() for each in files(eve)) == [False, True]


def test_a_vault_that_moves_during_a_write_is_written_again(
    eve: Agent, one: tuple[int, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of the old folder does not know the files of the new one."""

    def move() -> None:
        with mock.patch.object(vault_writer, "try_sync"):  # the process that moves it ends before its sync
            at_once(lambda: lifecycle.change(fresh(eve), PERSON, vault_path=str(root / "new")))

    at_replace(monkeypatch, move)
    operations.revise(eve, one[0], PERSON, content="changed")
    vault_writer.try_sync(eve.pk)
    now = fresh(eve)
    assert now.vault_path == str(root / "new")
    assert "changed" in files(now)[0].read_text()
    assert comparing.whole(now).differences == []
