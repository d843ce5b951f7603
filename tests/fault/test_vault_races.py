"""Many writers of a vault at once, and a person in their midst: nobody waits for ever, nobody's words are lost."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from memory.agents import lifecycle
from memory.errors import FileFault, MemoryFault
from memory.markdown import sections
from memory.models import Agent, Memory, Source, Vault, VaultFile
from memory.silo.silo import Silo
from memory.vault import comparing, disk, rendering
from memory.vault import writer as following
from memory.vault.layout import Line
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.fault import writer
from tests.fault.test_writers import at_once, start, whole
from tests.steps import ME, PERSON, fresh, remember, says
from tests.vault.tree import in_clear

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

THREADS, PROCESSES, EDITS = 4, 2, 12


@pytest.fixture
def root(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.setenv("VAULT_ROOTS", str(tmp_path))  # for other processes
    return tmp_path


def vaulted(root: Path, slug: str) -> Agent:
    return lifecycle.create("acme", slug, model="builtin/dedupe", actor=OPERATOR, vault_path=str(root / slug))[0]


@pytest.fixture
def eve(root: Path, transactional_db: None) -> Agent:
    return vaulted(root, "eve")


def files(agent: Agent) -> list[Path]:
    """Of memories, wherever they are."""
    return [path for path in Path(agent.vault_path).rglob("*.md") if path.name != "index.md"]


def agrees(agent: Agent, edited: frozenset[int] = frozenset()) -> None:
    """Each memory's file, but for those a person wrote to, says what it says; what was discarded is aside."""
    silo = Silo.for_agent(fresh(agent))
    rows = {file.number: file for file in VaultFile.objects.filter(agent_id=agent.pk)}
    for memory in Memory.objects.filter(agent_id=agent.pk).exclude(source=Source.SYSTEM):
        if memory.number in edited:
            continue
        file = rows.get(memory.number)
        if memory.discarded_at is not None:
            assert file is None or file.state == VaultFile.State.SET_ASIDE
            continue
        assert file is not None
        path = Path(agent.vault_path) / Line.open(silo, file).path
        said = rendering.blocks(path.read_text())
        told = sections.split(silo.open(memory).content, memory.category)
        assert {name: said.get(name) for name in told} == told
    assert not list(Path(agent.vault_path).rglob(f"{disk.NEW}*"))
    whole(agent)


class Person(threading.Thread):
    """Writes into whatever file there is, by an editor that adds to it and by one that puts another in its place."""

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
        except FileNotFoundError:  # moved meanwhile
            return
        self.marks.append(mark)

    def lost(self) -> list[str]:
        said = [in_clear(self.agent, path.read_bytes()) for path in files(self.agent)]
        return [mark for mark in self.marks if not any(mark.encode() in data for data in said)]


@contextmanager
def beside(*people: Person) -> Iterator[None]:
    for each in people:
        each.start()
    try:
        yield
    finally:
        for each in people:
            each.is_over.set()
            each.join()


def mended(agent: Agent) -> None:
    left = comparing.repair(fresh(agent)).left
    assert {each.kind for each in left} <= {comparing.EDITED, comparing.COPY}
    assert Vault.objects.get(agent_id=agent.pk).fault == ""
    agrees(agent, frozenset(each.number for each in left if each.kind == comparing.EDITED))


def edits(agent: Agent, many: int = EDITS) -> list[Callable[[], list[int]]]:
    return [lambda seed=seed: writer.edits(agent.pk, many, seed) for seed in range(THREADS)]  # type: ignore[misc]


def test_threads_at_one_vault(eve: Agent) -> None:
    made = at_once(*edits(eve))
    assert [len(each) for each in made] == [EDITS] * THREADS
    following.try_sync(eve.pk)
    assert comparing.whole(fresh(eve)).differences == []
    agrees(eve)


def test_processes_at_one_vault(eve: Agent) -> None:
    running = [start(eve.pk, EDITS, seed) for seed in range(PROCESSES)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    assert sum(len(json.loads(output)) for output in outputs) == PROCESSES * EDITS
    following.try_sync(eve.pk)
    assert comparing.whole(fresh(eve)).differences == []
    agrees(eve)


def test_a_person_who_writes_meanwhile_loses_nothing(eve: Agent) -> None:
    remember(eve, *(f"memory {nth}" for nth in range(6)), category="technical")
    person = Person(eve)
    running = [start(eve.pk, EDITS, seed) for seed in range(PROCESSES)]
    with beside(person):
        at_once(*edits(eve))
        outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    assert all(outputs)
    assert len(person.marks) > 10
    assert person.lost() == []
    mended(eve)
    assert person.lost() == []


def test_one_file_that_all_write_to(eve: Agent) -> None:
    """Each of the person's edits is kept."""
    [number] = remember(eve, "memory", category="technical")
    person = Person(eve, seed=2)

    def revise(word: str) -> None:
        for nth in range(EDITS):
            operations.revise(eve, number, ME, content=f"{word} {nth}")

    def repair() -> None:
        for _ in range(EDITS):
            try:
                comparing.repair(fresh(eve))
            except MemoryFault:
                time.sleep(0.01)

    with beside(person):
        assert at_once(lambda: revise("one"), lambda: revise("other"), repair) == [None, None, None]
    assert person.lost() == []
    mended(eve)
    assert person.lost() == []


def test_repairs_beside_edits(eve: Agent) -> None:
    def repair() -> None:
        for _ in range(4):
            comparing.repair(fresh(eve))

    outcomes = at_once(*edits(eve), repair, repair)
    assert not [each for each in outcomes if isinstance(each, Exception)]
    mended(eve)
    assert comparing.whole(fresh(eve)).differences == []


def test_who_holds_a_vault_keeps_no_edit_waiting_for_ever(eve: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is given up on after some seconds: the edit stands, its file comes later, and that is told."""
    monkeypatch.setattr("memory.vault.base.PATIENCE", 0.3)
    began = time.monotonic()
    in_another = threading.Thread(target=lambda: (remember(eve, "held up"), connections.close_all()))
    with following.opened(eve):
        in_another.start()
        in_another.join(timeout=10)
        assert not in_another.is_alive()
    assert 0.3 <= time.monotonic() - began < 5
    assert says(eve, 1).content == "held up"
    assert Vault.objects.get(agent_id=eve.pk).fault == "is locked by another program"
    following.catch_up()
    mended(eve)


def test_one_vault_that_is_held_is_in_no_other_ones_way(eve: Agent, root: Path) -> None:
    fay = vaulted(root, "fay")
    began = time.monotonic()
    with following.opened(eve):
        remember(fay, "of fay")
    assert time.monotonic() - began < 5
    assert [path.read_text().count("of fay") > 0 for path in files(fay)] == [True]


def test_two_agents_with_vaults_keep_apart(eve: Agent, root: Path) -> None:
    fay = vaulted(root, "fay")
    at_once(*edits(eve)[:2], *edits(fay)[:2])
    for agent in (eve, fay):
        following.try_sync(agent.pk)
        assert comparing.whole(fresh(agent)).differences == []
        agrees(agent)


# --- a person at the very moment at which a file takes another's place


def at_the_moment(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any], *, after: bool = False) -> None:
    """Have it done just before, or after, the first file takes its place."""
    replace, done = disk.Folder.replace, []

    def then(folder: disk.Folder, name: str, by: str) -> None:
        if after:
            replace(folder, name, by)
        if not done and name != "index.md":
            done.append(do())
        if not after:
            replace(folder, name, by)

    monkeypatch.setattr(disk.Folder, "replace", then)


def test_who_has_a_file_open_to_write_is_not_overtaken(eve: Agent) -> None:
    [number] = remember(eve, "memory", category="technical")
    [path] = files(eve)
    with path.open("a") as file:
        operations.revise(eve, number, PERSON, content="changed")
        assert "changed" not in path.read_text()
        assert Vault.objects.get().fault == "another program is writing to a file"
        file.write("by hand")
    following.catch_up()
    assert Vault.objects.get().fault == ""
    assert any("by hand" in each.read_text() for each in files(eve))
    assert [each.kind for each in comparing.whole(fresh(eve)).differences] == [comparing.COPY]
    assert "changed" in path.read_text()


def test_who_opened_it_just_before_is_waited_for(eve: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    [number] = remember(eve, "memory", category="technical")
    [path] = files(eve)

    def late() -> None:
        file = path.open("a")

        def write() -> None:
            file.write("by hand")
            file.close()

        threading.Timer(0.1, write).start()

    at_the_moment(monkeypatch, late)
    operations.revise(eve, number, PERSON, content="changed")
    assert "changed" in path.read_text()
    assert sorted("by hand" in each.read_text() for each in files(eve)) == [False, True]


def test_a_vault_that_was_placed_elsewhere_meanwhile_is_begun_anew(
    eve: Agent, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was writing the old one knows nothing of the new one's files."""
    remember(eve, "memory", category="technical")

    def moved() -> None:
        change = lambda: lifecycle.change(fresh(eve), PERSON, vault_path=str(root / "new"))  # noqa: E731
        with mock.patch.object(following, "try_sync"):  # who changed it ended before it could
            at_once(change)

    at_the_moment(monkeypatch, moved)
    remember(eve, "another", category="technical")
    following.try_sync(eve.pk)
    now = fresh(eve)
    assert len(files(now)) == 2
    assert comparing.whole(now).differences == []


def test_a_lock_is_waited_for_in_another_process(eve: Agent) -> None:
    with following.opened(eve):
        process = start(eve.pk, 1, 1)
        time.sleep(1.5)
    assert process.communicate(timeout=60)[0]
    assert process.returncode == 0
    following.try_sync(eve.pk)
    agrees(eve)


def test_a_lock_that_is_held_too_long_is_told(eve: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.vault.base.PATIENCE", 0.1)
    with following.opened(eve), pytest.raises(FileFault, match="locked"), following.opened(eve):
        pass
