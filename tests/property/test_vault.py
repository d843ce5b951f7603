"""With any sequence of switches, edits, rollbacks, a person's own doings in the folder, and crashes at any point of a
writing: no file of a category that is off is ever written, and what the silo says is what the vault says once it is
mended (seed 004). Nothing that a person wrote is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from audit.bulk import update_many
from audit.models import Change
from memory import errors
from memory.agents import lifecycle, rule_changes
from memory.consent import redaction, removal_requests
from memory.markdown import sections
from memory.models import Agent, Memory, Source, VaultFile
from memory.silo.silo import Silo
from memory.time_machine.rollback import What, roll_back
from memory.vault import comparing, rendering, writer
from memory.vault.disk import LOCK, Disk
from memory.vault.layout import Line
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.rules.talking import agreed
from tests.steps import ME, PERSON, fresh, problems, remember
from tests.vault.tree import in_clear

CATEGORIES = ("technical", "contextual", "personal", "topic")
WORDS = st.sampled_from(["heather", "moss", "fern", "lichen"])
PICK = st.integers(0, 99)
_run = itertools.count(1)


class Crash(Exception):
    """The process ended here."""


@contextmanager
def crashing(after: int | None) -> Iterator[None]:
    """Have the writing end at its n-th step on the disk or in the database."""
    if after is None:
        yield
        return
    left = itertools.count(after, -1)

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def either(*arguments: Any, **options: Any) -> Any:
            if next(left) <= 0:
                raise Crash
            return do(*arguments, **options)

        return either

    steps = [(Disk, name) for name in ("stage", "publish", "move", "remove", "append")]
    with mock.patch.multiple(Disk, **{name: dying(getattr(Disk, name)) for _, name in steps}):
        inserting = mock.patch.object(VaultFile.objects, "bulk_create", dying(VaultFile.objects.bulk_create))
        updating = mock.patch("memory.vault.files.update_many", dying(update_many))
        with inserting, updating, suppress(Crash):
            yield


def spoilt(path: Path, hand: str) -> None:
    """As some editors leave a file: without the number it had, or in another encoding."""
    text = path.read_text()
    if hand == "unnumbered":
        text = "".join(line for line in text.splitlines(keepends=True) if "Memory ID" not in line)
    path.write_bytes((text + "h\xe9").encode("latin-1", "replace"))


class Vaulted(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(self.at_end.enter_context(TemporaryDirectory()))
        self.at_end.enter_context(mock.patch.object(django_settings, "VAULT_ROOTS", [str(self.root)]))
        self.vault = self.root / "vault"
        label = f"v{next(_run)}"
        self.agent = lifecycle.create(label, "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=str(self.vault))[
            0
        ]
        self.off: set[str] = set()
        self.is_on = True
        self.written: list[str] = []  # by a person
        self.redacted: list[str] = []
        self.before: dict[str, bytes] = {}
        for category in CATEGORIES:
            remember(self.agent, f"{category} blooms", f"{category} fades", category=category)
        self.follow(None)

    def check_at_end(self) -> None:
        assert problems(self.agent) == []

    def row(self) -> Agent:
        return fresh(self.agent)

    def number(self, pick: int, *, discarded: bool = False) -> int:
        """One of its memories."""
        there = Memory.objects.filter(agent_id=self.agent.pk, discarded_at__isnull=not discarded).order_by("number")
        numbers = list(there.values_list("number", flat=True))
        return numbers[pick % len(numbers)] if numbers else 1

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.vault.rglob("*.md") if path.is_file() and path.name != LOCK)
        return {str(path.relative_to(self.vault)): path.read_bytes() for path in found}

    def of_closed(self) -> dict[str, bytes]:
        """What is there of categories that are off."""
        found = {}
        for path, data in self.files().items():
            said = rendering.read_file(data)
            memory = said and Memory.objects.filter(agent_id=self.agent.pk, number=said.number).first()
            if memory and (memory.category in self.off or not self.is_on):
                found[path] = data
        return found

    def follow(self, crash: int | None) -> None:
        """As a commit does it."""
        with crashing(crash), transaction.atomic():
            writer.sync(self.row())

    def act(self, do: Callable[[], Any], crash: int | None) -> None:
        """An edit, whatever becomes of it, and what follows it."""
        before = self.of_closed()
        with transaction.atomic():
            inner = transaction.savepoint()
            try:
                do()
            except errors.MemoryFault:
                transaction.savepoint_rollback(inner)
        with suppress(errors.MemoryFault):
            self.follow(crash)
        assert self.of_closed() == before

    CRASH = st.one_of(st.none(), st.integers(0, 6))

    # --- the agent's doings

    @rule(category=st.sampled_from(CATEGORIES), word=WORDS, crash=CRASH)
    def remember(self, category: str, word: str, crash: int | None) -> None:
        self.act(lambda: remember(self.row(), f"{word} blooms", category=category), crash)

    @rule(pick=PICK, word=WORDS, crash=CRASH)
    def revise(self, pick: int, word: str, crash: int | None) -> None:
        self.act(
            lambda: operations.revise(self.row(), self.number(pick), PERSON, content=f"{word} fades {pick}"), crash
        )

    @rule(pick=PICK, crash=CRASH)
    def discard(self, pick: int, crash: int | None) -> None:
        self.act(lambda: operations.discard(self.row(), [self.number(pick)], PERSON), crash)

    @rule(pick=PICK, crash=CRASH)
    def restore(self, pick: int, crash: int | None) -> None:
        self.act(lambda: operations.restore(self.row(), [self.number(pick, discarded=True)], PERSON), crash)

    @rule(pick=PICK, crash=CRASH)
    def merge(self, pick: int, crash: int | None) -> None:
        numbers = sorted({self.number(pick), self.number(pick + 1)})
        self.act(
            lambda: operations.consolidate(self.row(), numbers, f"both {pick}", PERSON, category="technical"), crash
        )

    @rule(pick=PICK, off=st.booleans(), crash=CRASH)
    def roll_back(self, pick: int, off: bool, crash: int | None) -> None:
        """Also of what is off: the Time Machine passes the switches, and its files do not."""
        touched = Change.objects.filter(agent_id=self.agent.pk).order_by("pk").values_list("seq", "number")
        seq, number = touched[pick % len(touched)]
        if off:
            self.switch_off(Memory.objects.get(agent_id=self.agent.pk, number=number).category)
        self.act(lambda: roll_back(self.row(), What.entry(seq), PERSON, force=True), crash)

    @rule(pick=PICK, hand=st.sampled_from(["", "unnumbered", "other letters"]), aside=st.booleans(), crash=CRASH)
    def redact(self, pick: int, hand: str, aside: bool, crash: int | None) -> None:
        """What was in its file once, and in what a person made of it, is nowhere."""
        number, mark = self.number(pick), f"secret-{len(self.redacted)}."
        if Memory.objects.get(agent_id=self.agent.pk, number=number).redacted_at:  # there is no other
            return
        self.act(lambda: operations.revise(self.row(), number, PERSON, content=mark), crash)
        with suppress(errors.MemoryFault):
            writer.sync(self.row())
        self.redacted.append(mark)
        for path in [path for path, data in self.files().items() if mark.encode() in data and hand]:
            spoilt(self.vault / path, hand)
            self.act(lambda: operations.revise(self.row(), number, PERSON, content=f"other {mark}"), None)
            with suppress(errors.MemoryFault), transaction.atomic():
                if aside:
                    comparing.repair(self.row())
        asked = removal_requests.ask_redaction(self.row(), [number], PERSON, reason="17").number
        with transaction.atomic():
            redaction.redact(self.row(), asked, ME, include_constitutional=True)
        self.follow(crash)
        writer.sync(self.row())
        self.written = [mark for mark in self.written if self.is_somewhere(mark)]  # what stood in its files went too

    # --- switches

    @rule(off=st.sets(st.sampled_from(CATEGORIES), max_size=1))
    def switch(self, off: set[str]) -> None:
        self.switch_off(*off)

    def switch_off(self, *off: str) -> None:
        """These, and no others."""
        self.off = set(off)
        given = {"memory_rules": {"categories": {name: {"enabled": False} for name in self.off}}}
        agreed(self.agent, given)
        self.follow(None)

    @rule(off=st.integers(0, 5))
    def switch_memory(self, off: int) -> None:
        is_on = bool(off)
        rule_changes.change(self.row(), PERSON, enabled=is_on)
        self.is_on = is_on
        self.follow(None)

    # --- a person's doings in the folder

    @rule(pick=PICK, then=st.sampled_from(["", "revise", "discard", "mend"]))
    def write(self, pick: int, then: str) -> None:
        """And the agent does something with that very memory."""
        paths = [path for path in sorted(self.files()) if not path.endswith("index.md")]
        if not paths:
            return
        path = self.vault / paths[pick % len(paths)]
        said = rendering.read_file(path.read_bytes())
        mark = f"by hand {len(self.written)}."
        with path.open("a") as file:
            file.write(mark)
        self.written.append(mark)
        number = said.number if said else 1
        if then == "revise":
            self.act(lambda: operations.revise(self.row(), number, PERSON, content=f"other {mark[8:]}"), None)
        elif then == "discard":
            self.act(lambda: operations.discard(self.row(), [number], PERSON), None)
        elif then == "mend":
            self.mend()

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        paths = [path for path, data in sorted(self.files().items()) if b"by hand" not in in_clear(self.row(), data)]
        if paths:
            (self.vault / paths[pick % len(paths)]).unlink()

    def is_somewhere(self, mark: str) -> bool:
        return any(mark.encode() in in_clear(self.row(), data) for data in self.files().values())

    # --- what holds

    @rule()
    def mend(self) -> None:
        if not self.is_on:
            with pytest.raises(errors.MemoryDisabled):
                comparing.repair(self.row())
            return
        done = comparing.repair(self.row())
        for each in done.left:  # a crash leaves none of these: a person does
            assert each.kind == comparing.COPY
            category = Memory.objects.get(agent_id=self.agent.pk, number=each.number).category
            is_closed = category in self.off  # whose files stay as a crash left them, till it is on
            assert is_closed or b"by hand" in in_clear(self.row(), (self.vault / each.path).read_bytes())
        self.agrees()

    def agrees(self) -> None:
        """Each memory's file says what it says, and stands in its index."""
        agent = self.row()
        silo, closed = Silo.for_agent(agent), writer.Files(agent, None).closed  # type: ignore[arg-type]
        files = {file.number: file for file in VaultFile.objects.filter(agent_id=agent.pk)}
        listed = "".join(data.decode() for path, data in self.files().items() if path.endswith("index.md"))
        for memory in Memory.objects.filter(agent_id=agent.pk).exclude(source=Source.SYSTEM):
            file = files.get(memory.number)
            if memory.category in closed:
                continue
            if memory.discarded_at is not None:
                assert file is None or file.state == VaultFile.State.SET_ASIDE
                continue
            assert file is not None
            path, title = Line.open(silo, file).path, Line.open(silo, file).title
            said = rendering.read_file((self.vault / path).read_bytes())
            opened = silo.open(memory)
            assert said is not None
            assert f"[{title}](" in listed
            if said.sealed is not None:
                assert silo.open_sealed(memory.number, said.sealed) == opened
            else:
                told = sections.split(opened.content, memory.category)
                shown = rendering.blocks((self.vault / path).read_text())
                assert {name: shown.get(name) for name in told} == told

    @invariant()
    def nothing_that_was_redacted_is_there(self) -> None:
        for path in self.vault.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert not [mark for mark in self.redacted if mark.encode() in data], path

    @invariant()
    def nothing_a_person_wrote_is_lost(self) -> None:
        for mark in self.written:
            assert self.is_somewhere(mark), mark


@pytest.mark.django_db
def test_silo_and_vault_agree(settings: Any) -> None:
    settings.ASKS_PER_PERSON = settings.ASKS_PER_AGENT = 1_000  # redactions of one walk, which would be refused else
    run_state_machine_as_test(Vaulted, settings=walks(12, steps=25))
