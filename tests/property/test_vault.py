"""With any sequence of switches, edits, rollbacks, edits of files by a person, and crashes at any point of a write: no
file of a category that is off is written, after a repair silo and vault agree (seed 004), and nothing that a person
wrote is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from audit.bulk import update_many
from audit.models import Change
from memory import errors
from memory.agents import rule_changes
from memory.consent import redaction, requests
from memory.models import Agent, Kind, Memory, VaultFile
from memory.time_machine.rollback import What, roll_back
from memory.vault import comparing, rendering, writer
from memory.vault.disk import LOCK, Disk
from memory.writing import operations
from tests.fault.agreement import differences
from tests.property.walk import Walk, attempt, walk
from tests.rules.recordings import agreed
from tests.steps import ME, PERSON, remember
from tests.vault.tree import in_clear

CATEGORIES = ("technical", "contextual", "personal", "topic")
WORDS = st.sampled_from(["heather", "moss", "fern", "lichen"])
PICK = st.integers(0, 99)
CRASH = st.one_of(st.none(), st.integers(0, 6))  # the step of a write at which the process ends


class Crash(Exception):
    """The process ends here."""


@contextmanager
def crashing(after: int | None) -> Iterator[None]:
    """End the write at its n-th step on the disk or in the database."""
    if after is None:
        yield
        return
    left = itertools.count(after, -1)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def either(*arguments: Any, **options: Any) -> Any:
            if next(left) <= 0:
                raise Crash
            return call(*arguments, **options)

        return either

    steps = ("stage", "publish", "move", "remove", "append")
    with (
        mock.patch.multiple(Disk, **{name: counted(getattr(Disk, name)) for name in steps}),
        mock.patch.object(VaultFile.objects, "bulk_create", counted(VaultFile.objects.bulk_create)),
        mock.patch("memory.vault.files.update_many", counted(update_many)),
        suppress(Crash),
    ):
        yield


def spoil(path: Path, how: str) -> None:
    """Leave a file as some editors do: without its number, or in another encoding."""
    text = path.read_text()
    if how == "unnumbered":
        text = "".join(line for line in text.splitlines(keepends=True) if "Memory ID" not in line)
    path.write_bytes((text + "h\xe9").encode("latin-1", "replace"))


def operation(name: str, verb: Callable[[Agent, int, int], Any], *, discarded: bool = False) -> Any:
    """A rule of an operation on one memory, with a crash in the write of its file."""

    def run(self: Vaults, pick: int, crash: int | None) -> None:
        self.edit(lambda: verb(self.row(), self.number(pick, discarded=discarded), pick), crash)

    run.__name__ = name
    return rule(pick=PICK, crash=CRASH)(run)


class Vaults(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.vault = self.create_with_vault()
        self.off: set[str] = set()
        self.is_on = True
        self.marks: list[str] = []  # what a person wrote
        self.redacted: list[str] = []
        for category in CATEGORIES:
            remember(self.agent, f"{category} blooms", f"{category} fades", category=category)
        self.sync(None)

    def number(self, pick: int, *, discarded: bool = False) -> int:
        memories = Memory.objects.of(self.agent).in_layers(["discarded", "beneath"] if discarded else Kind.values)
        numbers = list(memories.order_by("number").values_list("number", flat=True))
        return numbers[pick % len(numbers)] if numbers else 1

    def memory(self, number: int) -> Memory:
        return Memory.objects.get(agent_id=self.agent.pk, number=number)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.vault.rglob("*.md") if path.is_file() and path.name != LOCK)
        return {str(path.relative_to(self.vault)): path.read_bytes() for path in found}

    def closed_files(self) -> dict[str, bytes]:
        """The files of categories that are off."""
        found = {}
        for path, data in self.files().items():
            file = rendering.read_file(data)
            memory = file and Memory.objects.filter(agent_id=self.agent.pk, number=file.number).first()
            if memory and (memory.category in self.off or not self.is_on):
                found[path] = data
        return found

    def contains(self, mark: str) -> bool:
        return any(mark.encode() in in_clear(self.row(), data) for data in self.files().values())

    def sync(self, crash: int | None) -> None:
        """Write files as a commit does."""
        with crashing(crash), transaction.atomic():
            writer.sync(self.row())

    def edit(self, act: Callable[[], Any], crash: int | None = None) -> None:
        """An edit, which may be refused, and the sync after it."""
        before = self.closed_files()
        attempt(act, errors.MemoryFault)
        with suppress(errors.MemoryFault):
            self.sync(crash)
        assert self.closed_files() == before

    @rule(category=st.sampled_from(CATEGORIES), word=WORDS, crash=CRASH)
    def remember(self, category: str, word: str, crash: int | None) -> None:
        self.edit(lambda: remember(self.row(), f"{word} blooms", category=category), crash)

    @rule(pick=PICK, word=WORDS, crash=CRASH)
    def revise(self, pick: int, word: str, crash: int | None) -> None:
        text = f"{word} fades {pick}"
        self.edit(lambda: operations.revise(self.row(), self.number(pick), PERSON, content=text), crash)

    discard = operation("discard", lambda agent, number, _: operations.discard(agent, [number], PERSON))
    restore = operation("restore", lambda agent, number, _: operations.restore(agent, [number], PERSON), discarded=True)

    @rule(pick=PICK, crash=CRASH)
    def merge(self, pick: int, crash: int | None) -> None:
        pair, text = sorted({self.number(pick), self.number(pick + 1)}), f"both {pick}"
        self.edit(lambda: operations.consolidate(self.row(), pair, text, PERSON, category="technical"), crash)

    @rule(pick=PICK, off=st.booleans(), crash=CRASH)
    def roll_back(self, pick: int, off: bool, crash: int | None) -> None:
        """A rollback ignores switches, but writes no file of a category that is off."""
        changed = Change.objects.filter(agent_id=self.agent.pk).order_by("pk").values_list("seq", "number")
        seq, number = changed[pick % len(changed)]
        if off:
            self.switch_off(self.memory(number).category)
        self.edit(lambda: roll_back(self.row(), What("entry", seq), PERSON, force=True), crash)

    @rule(pick=PICK, how=st.sampled_from(["", "unnumbered", "other encoding"]), aside=st.booleans(), crash=CRASH)
    def redact(self, pick: int, how: str, aside: bool, crash: int | None) -> None:
        """The redacted content is in no file, also if a person spoiled a file that had it."""
        number, mark = self.number(pick), f"secret-{len(self.redacted)}."
        if self.memory(number).redacted_at:  # there is no other memory
            return
        self.edit(lambda: operations.revise(self.row(), number, PERSON, content=mark), crash)
        with suppress(errors.MemoryFault):
            writer.sync(self.row())
        self.redacted.append(mark)
        for path in [path for path, data in self.files().items() if mark.encode() in data and how]:
            spoil(self.vault / path, how)
            self.edit(lambda: operations.revise(self.row(), number, PERSON, content=f"other {mark}"))
            with suppress(errors.MemoryFault), transaction.atomic():
                if aside:
                    comparing.repair(self.row())
        request = requests.ask_redaction(self.row(), [number], PERSON, reason="17").number
        with transaction.atomic():
            redaction.redact(self.row(), request, ME, include_constitutional=True)
        self.sync(crash)
        writer.sync(self.row())
        self.marks = [mark for mark in self.marks if self.contains(mark)]  # those in its files are redacted too

    @rule(off=st.sets(st.sampled_from(CATEGORIES), max_size=1))
    def switch(self, off: set[str]) -> None:
        self.switch_off(*off)

    def switch_off(self, *off: str) -> None:
        """Switch these categories off, and all others on."""
        self.off = set(off)
        agreed(self.agent, {"memory_rules": {"categories": {name: {"enabled": False} for name in off}}})
        self.sync(None)

    @rule(on=st.integers(0, 5))
    def switch_memory(self, on: int) -> None:
        """Off in one of six cases."""
        self.is_on = bool(on)
        rule_changes.change(self.row(), PERSON, enabled=self.is_on)
        self.sync(None)

    @rule(pick=PICK, then=st.sampled_from(["", "revise", "discard", "repair"]))
    def write_by_hand(self, pick: int, then: str) -> None:
        """Then the agent edits the same memory."""
        paths = [path for path in sorted(self.files()) if not path.endswith("index.md")]
        if not paths:
            return
        path, mark = self.vault / paths[pick % len(paths)], f"by hand {len(self.marks)}."
        file = rendering.read_file(path.read_bytes())
        with path.open("a") as opened:
            opened.write(mark)
        self.marks.append(mark)
        number = file.number if file else 1
        if then == "revise":
            self.edit(lambda: operations.revise(self.row(), number, PERSON, content=f"other {mark[8:]}"))
        elif then == "discard":
            self.edit(lambda: operations.discard(self.row(), [number], PERSON))
        elif then == "repair":
            self.repair()

    @rule(pick=PICK)
    def delete_a_file(self, pick: int) -> None:
        paths = [path for path, data in sorted(self.files().items()) if b"by hand" not in in_clear(self.row(), data)]
        if paths:
            (self.vault / paths[pick % len(paths)]).unlink()

    @rule()
    def repair(self) -> None:
        if not self.is_on:
            with pytest.raises(errors.MemoryDisabled):
                comparing.repair(self.row())
            return
        for each in comparing.repair(self.row()).left:  # a person leaves these; a crash does only while it is off
            assert each.kind == comparing.COPY
            is_closed = self.memory(each.number).category in self.off
            assert is_closed or b"by hand" in in_clear(self.row(), (self.vault / each.path).read_bytes())
        closed = writer.Files(self.row(), None).closed
        assert differences(self.row(), closed) == []

    @invariant()
    def nothing_redacted_is_in_a_file(self) -> None:
        for path in self.vault.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert not [mark for mark in self.redacted if mark.encode() in data], path

    @invariant()
    def nothing_a_person_wrote_is_lost(self) -> None:
        assert [mark for mark in self.marks if not self.contains(mark)] == []


@pytest.mark.django_db
def test_silo_and_vault_agree(settings: Any) -> None:
    settings.ASKS_PER_PERSON = settings.ASKS_PER_AGENT = 1_000  # a walk makes many requests for redactions
    walk(Vaults, 8, steps=25)
