"""A vault follows its silo: after each commit the files of the memories it touched are written, moved or removed.

The trail is the outbox. A vault knows up to which entry it has followed; what came since names the memories to look at,
and each file's row says which version of its memory was written. So nothing is noted beside the edit itself, an attempt
that failed is made again by whoever comes next, and one that was made twice finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from threading import local

import structlog
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from django.utils import timezone

from audit import bulk
from audit.models import Change
from memory.errors import FileFault
from memory.models import Agent, Memory, Vault, VaultFile
from memory.silo.silo import Silo
from memory.vault import base, pending, removing
from memory.vault.disk import LOCK, Disk
from memory.vault.files import AT_ONCE, Files, has_followed
from memory.vault.holding import folder_at, held

CAUGHT_UP_AT_ONCE = 100  # vaults
OWED_AGAIN = timedelta(minutes=1)  # from one attempt of whoever edits to the next; workers try in between

_STANDS = (
    '"agent_id" = %s AND "seq" = %s AND EXISTS '
    '(SELECT 1 FROM "memory_agent" WHERE "id" = "agent_id" AND "audit_seq" = %s AND "vault_path" = %s)'
)

log = structlog.get_logger("palimpsest.vault")


def follow(agent_id: int) -> None:
    """Have the agent's vault say what its silo says. What keeps it from that is logged and kept, and raises nothing:
    the edit that it follows stands."""
    if agent_id in _held_here.agents:
        return
    with _faults_noted(agent_id):
        agent = Agent.objects.select_related("tenant").filter(pk=agent_id).exclude(vault_path="").first()
        if agent is not None and is_behind(agent):
            bring(agent)


def follow_when_committed(*, agent: Agent, seq: int, memories: Sequence[Memory], are_new: bool, **_: object) -> None:
    """Receives `edited`: has the vault follow once the edit is committed, and before its caller goes on."""
    if agent.vault_path:
        transaction.on_commit(partial(follow_edit, agent, seq, memories, are_new=are_new))


def follow_edit(agent: Agent, seq: int, memories: Sequence[Memory], *, are_new: bool) -> None:
    """The same right after an edit: `agent` and `memories` as entry `seq` left them. Where nothing else was to be
    followed they are as they stand, and need not be read again. Raises nothing."""
    if agent.pk in _held_here.agents or _was_let_go(agent):
        return
    with _faults_noted(agent.pk), opened(agent) as disk:
        if not (agent.wrapped_key and _stands(agent, seq)):
            _require_whole(_bring(agent, disk, None))
            return
        files = Files(agent, disk)
        try:
            for start in range(0, len(memories), AT_ONCE):
                if start:
                    files.finish()
                files.take_these(memories[start : start + AT_ONCE], are_new=are_new)
            if files.are_pages_anew:
                files.finish()
                pending.rebuild(files)
            files.finish(followed=seq)
        except FileFault:  # each by itself, then
            files.drop()
            _require_whole(_bring(agent, disk, None))
            return
        _require_same(agent)
        _require_whole(files)


def _was_let_go(agent: Agent) -> bool:
    """Whether this was erased, and an earlier entry of the same transaction has removed its files."""
    return not agent.wrapped_key and not Agent.objects.filter(pk=agent.pk, vault_path=agent.vault_path).exists()


def _stands(agent: Agent, seq: int) -> bool:
    """Whether this entry is the last there is, and the one before it was followed; but now and then for what is owed
    since."""
    seen = bulk.values(Vault, ("fault",), _STANDS, [agent.pk, seq - 1, seq, agent.vault_path])
    if not seen:
        return False
    return not seen[0][0] or Vault.objects.filter(pk=agent.pk, fault_at__gt=timezone.now() - OWED_AGAIN).exists()


def _require_same(agent: Agent) -> None:
    if bulk.values(Agent, ("vault_path",), '"id" = %s', [agent.pk]) != [(agent.vault_path,)]:
        forget(agent)  # or the new one would count these files as its own
        raise FileFault("The vault of this agent is another one since.", "another vault since")


@contextmanager
def _faults_noted(agent_id: int) -> Iterator[None]:
    try:
        yield
    except FileFault as fault:
        _note_fault(agent_id, fault.reason)
    except Exception as fault:  # a key that is gone, a database that is, no memory: by its class and its place alone
        log.error("vault not followed", agent=agent_id, exc_info=(type(fault), fault, fault.__traceback__))
        _note_fault(agent_id, type(fault).__name__)


def catch_up() -> None:
    """Follow for whoever could not: the vaults that are behind, some at a time, those that failed last longest ago; and
    those whose folder somebody has made anew."""
    vault = Q(vault__isnull=True) | Q(vault__seq__lt=F("audit_seq")) | ~Q(vault__fault="")
    behind = Agent.objects.filter(vault, ~Q(vault_path="")).order_by(F("vault__fault_at").asc(nulls_first=True), "pk")
    late = list(behind.values_list("pk", flat=True)[:CAUGHT_UP_AT_ONCE])
    others = Agent.objects.exclude(vault_path="").exclude(pk__in=late).order_by("pk").values_list("pk", "vault_path")
    emptied = (
        agent_id for agent_id, path in others.iterator() if Path(path).is_dir() and not Path(path, LOCK).exists()
    )
    for agent_id in [*late, *islice(emptied, CAUGHT_UP_AT_ONCE - len(late))]:
        follow(agent_id)


def is_behind(agent: Agent) -> bool:
    """Whether it has still to be written: what came since, what could not be, or all of it, where its folder has not
    its mark."""
    seen = Vault.objects.filter(agent_id=agent.pk).values_list("seq", "fault").first()
    return seen is None or seen[0] < agent.audit_seq or bool(seen[1]) or not _is_marked(agent)


def _is_marked(agent: Agent) -> bool:
    """Whether its folder is the one that was written to: another, made under its name since, has no mark."""
    try:
        with folder_at(Path(agent.vault_path), base.roots()) as folder:
            if folder is None:
                return False
            disk = Disk(folder, -1)
            try:
                return disk.whose() == base.mark_of(agent)
            finally:
                disk.close()
    except FileFault:
        return False


def is_there(agent: Agent) -> bool:
    """Whether its folder is."""
    return bool(agent.vault_path) and Path(agent.vault_path).is_dir()


def bring(agent: Agent, numbers: Iterable[int] | None = None) -> Files | None:
    """The same for these memories, or for those that entries touched which it has not followed yet. None for an agent
    that was erased: its files are removed. Raises FileFault, MemoryFault."""
    with opened(agent) as disk:
        files = _bring(agent, disk, numbers)
        _require_whole(files)
        return files


def bring_held(agent: Agent, disk: Disk, numbers: Iterable[int]) -> int:
    """These memories in a vault that is held: how many files were written. Raises FileFault."""
    files = _bring(agent, disk, numbers)
    _require_whole(files)
    return len(files.written) if files is not None else 0


def catch_up_held(agent: Agent, disk: Disk, numbers: Iterable[int] = ()) -> int:
    """These memories, and what it has not followed yet, in a vault that is held: how many files were brought to what
    the silo says. Raises nothing, as `follow`."""
    brought = 0
    with _faults_noted(agent.pk):
        for which in (numbers, None):
            files = _bring(agent, disk, which)
            brought += len(files.written) + len(files.aside) if files is not None else 0
            _require_whole(files)
    return brought


def _require_whole(files: Files | None) -> None:
    """Raises the first fault of what could not be written."""
    if files is not None and files.fault is not None:
        raise files.fault


def _bring(agent: Agent, disk: Disk, numbers: Iterable[int] | None) -> Files | None:
    now = Agent.objects.select_related("tenant").get(pk=agent.pk)  # as it stands while nobody else writes
    if now.vault_path != agent.vault_path:
        raise FileFault("The vault of this agent is another one since.", "another vault since")
    if not now.wrapped_key:
        removing.remove_all(disk, now)
        disk.give_up()
        _let_go(now)
        return None
    files = Files(now, disk)
    if numbers is None:
        _bring_owed(files)
    else:
        pending.bring(files, numbers)
        if files.are_pages_anew:
            pending.rebuild(files)
        _require_same(now)
    return files


def _bring_owed(files: Files) -> None:
    """What it has not followed yet; and what it owed, where something could not be written."""
    now = files.agent
    vault = Vault.objects.get_or_create(agent_id=now.pk, defaults={"seq": 0})[0]
    was_owing = bool(vault.fault)
    are_pages_anew = was_owing or (not vault.seq and VaultFile.objects.filter(agent_id=now.pk).exists())
    if files.remove_owed():
        pending.rebuild(files)
    pending.bring(files, _touched(now, vault.seq))
    if was_owing:
        pending.bring(files, pending.numbers(files))
    if files.are_pages_anew or are_pages_anew:  # pages may be gone
        pending.rebuild(files)
    _require_same(now)
    if files.owes_removal or (files.fault is not None and not (files.written or files.aside)):
        return  # as it was: all of it is tried again with the next edit
    has_followed(now, now.audit_seq, before=vault.seq, fault=files.fault, is_all=True)


def file_of(agent: Agent, number: int) -> str | None:
    """Where a memory's file is, as the memory stands: None where it has none, or one of an earlier version."""
    return files_of(agent, [number]).get(number)


def files_of(agent: Agent, numbers: Sequence[int]) -> dict[int, str]:
    """The same of several; those that have one."""
    if not agent.vault_path:
        return {}
    mine = Memory.objects.filter(agent_id=agent.pk, number__among=list(numbers))
    versions = dict(mine.values_list("number", "version"))
    files = VaultFile.objects.filter(agent_id=agent.pk, number__among=list(numbers), state=VaultFile.State.THERE)
    silo, found = Silo.for_agent(agent), {}
    for file in files:
        path = Path(agent.vault_path) / silo.open_text("vault", file.number, bytes(file.sealed_path))
        with suppress(OSError):  # what this process may not look at
            if file.version == versions[file.number] and path.is_file():
                found[file.number] = str(path)
    return found


class _HeldHere(local):
    """Agents whose vaults this thread holds: whoever does follows their silo itself, once it is done."""

    def __init__(self) -> None:
        self.agents: set[int] = set()


_held_here = _HeldHere()


@contextmanager
def opened(agent: Agent) -> Iterator[Disk]:
    """The agent's vault, held. Raises FileFault, FileElsewhere."""
    with held(Path(agent.vault_path), base.roots()) as disk:
        mark = base.mark_of(agent)
        if not disk.require_nobody_elses(mark):
            _begin_anew_whole(agent)  # before it is marked, or a killed writer's folder would pass for whole
            disk.claim(mark)
        _held_here.agents.add(agent.pk)
        try:
            yield disk
        finally:
            _held_here.agents.discard(agent.pk)


def _touched(agent: Agent, seen: int) -> Iterator[int]:
    changes = Change.objects.filter(agent_id=agent.pk, seq__gt=seen)
    yield from changes.order_by("number").values_list("number", flat=True).distinct().iterator(chunk_size=2_000)


def _note_fault(agent_id: int, why: str) -> None:
    log.error("vault not followed", agent=agent_id, reason=why)
    told = {"fault": why[:200], "fault_at": timezone.now()}
    with suppress(DatabaseError), transaction.atomic():  # the log has it
        Vault.objects.update_or_create(agent_id=agent_id, defaults=told, create_defaults=told | {"seq": 0})


def _let_go(agent: Agent) -> None:
    """Of the vault of an agent that was erased, once nothing is in it."""
    with transaction.atomic():
        forget(agent)
        Agent.objects.filter(pk=agent.pk, wrapped_key=b"").update(vault_path="")


def begin_anew(agent: Agent) -> None:
    """Have its vault look at every memory again with the next commit."""
    Vault.objects.filter(agent_id=agent.pk).update(seq=0)


def begin_anew_masked(agent: Agent) -> None:
    """The same, and write each file anew: from now on it shows no secret."""
    _begin_anew_whole(agent)


def _begin_anew_whole(agent: Agent) -> None:
    VaultFile.objects.filter(agent_id=agent.pk).update(rules_version="")
    begin_anew(agent)


def begin_anew_elsewhere(agent: Agent, categories: Iterable[str]) -> None:
    """The same, of these categories: their files are sealed from now on, or no longer."""
    numbers = Memory.objects.filter(agent_id=agent.pk, category__in=list(categories)).values("number")
    VaultFile.objects.filter(agent_id=agent.pk, number__in=numbers).update(rules_version="")
    begin_anew(agent)


def forget(agent: Agent) -> None:
    """What is known of its files; the files stay."""
    VaultFile.objects.filter(agent_id=agent.pk).delete()
    Vault.objects.filter(agent_id=agent.pk).delete()
