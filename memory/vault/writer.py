"""Makes a vault follow its silo: after each commit it writes, moves or removes the files of the changed memories.

The audit trail is the outbox. A vault's row says up to which entry the vault has followed, and a file's row says which
version of its memory was written. After a fault the vault stays at its entry, so that the next edit, or a worker, tries
again everything that came since. What is up to date is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import structlog
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from django.utils import timezone

from audit.models import Change
from audit.waiting import without_disk_sync
from memory.errors import FileFault
from memory.models import Agent, Memory, Vault, VaultFile
from memory.silo.silo import Silo
from memory.vault import base, removing
from memory.vault.base import held, looked_at
from memory.vault.disk import LOCK, Disk
from memory.vault.files import Files
from memory.vault.layout import Line

CAUGHT_UP_AT_ONCE = 100  # vaults
RETRY_AFTER = timedelta(minutes=1)  # edits retry a fault at most so often; workers retry in between
_ANOTHER_VAULT = "This agent has got another vault meanwhile.", "another vault since"

log = structlog.get_logger("palimpsest.vault")


def follow_when_committed(*, agent: Agent, memories: Sequence[Memory], **_: object) -> None:
    """Receives the signal `edited`. The vault follows after the commit, before the caller continues."""
    if agent.vault_path:
        numbers = [memory.number for memory in memories]
        transaction.on_commit(partial(follow, agent.pk, numbers, agent=agent if agent.wrapped_key else None))


def follow(agent_id: int, edited: Sequence[int] = (), *, agent: Agent | None = None) -> None:
    """Make the agent's vault follow its silo. A fault is logged and noted, and not raised, because the edit stands.
    Soon after a fault only the files of `edited` are tried."""
    with faults_noted(agent_id):
        agent = agent or Agent.objects.only("vault_path", "created_at").get(pk=agent_id)
        if agent.vault_path:
            bring(agent, edited)


@contextmanager
def faults_noted(agent_id: int) -> Iterator[None]:
    try:
        yield
    except FileFault as fault:
        _note_fault(agent_id, fault.reason)
    except Exception as fault:  # a missing key, no database, no memory: only its class and its place are told
        log.error("vault not followed", agent=agent_id, exc_info=(type(fault), fault, fault.__traceback__))
        _note_fault(agent_id, type(fault).__name__)


def _note_fault(agent_id: int, reason: str) -> None:
    log.error("vault not followed", agent=agent_id, reason=reason)
    values = {"fault": reason[:200], "fault_at": timezone.now()}
    with suppress(DatabaseError), transaction.atomic():  # it is in the log
        Vault.objects.update_or_create(agent_id=agent_id, defaults=values, create_defaults=values | {"seq": 0})


def catch_up() -> None:
    """Worker: follow for vaults that are behind, those whose last fault is oldest first, and for vaults whose folder
    was emptied."""
    vault = Q(vault__isnull=True) | Q(vault__seq__lt=F("audit_seq")) | ~Q(vault__fault="")
    behind = Agent.objects.filter(vault, ~Q(vault_path="")).order_by(F("vault__fault_at").asc(nulls_first=True), "pk")
    late = list(behind.values_list("pk", flat=True)[:CAUGHT_UP_AT_ONCE])
    others = Agent.objects.exclude(vault_path="").exclude(pk__in=late).order_by("pk").values_list("pk", "vault_path")
    emptied = (
        agent_id for agent_id, path in others.iterator() if Path(path).is_dir() and not Path(path, LOCK).exists()
    )
    for agent_id in [*late, *islice(emptied, CAUGHT_UP_AT_ONCE - len(late))]:
        follow(agent_id)


def bring(agent: Agent, edited: Sequence[int] = ()) -> None:
    """As `follow`. Raises FileFault, and what a silo raises."""
    with opened(agent) as disk:
        bring_held(agent, disk, edited)


def bring_held(agent: Agent, disk: Disk, edited: Sequence[int] = ()) -> None:
    """The same in a vault that is held. Raises the first fault of a file, after all others are written."""
    now = Agent.objects.select_related("tenant").get(pk=agent.pk)  # as it is while nobody else writes
    if now.vault_path != agent.vault_path:
        raise FileFault(*_ANOTHER_VAULT)
    if not now.wrapped_key:
        _remove_erased(disk, now)
        return
    files = Files(now, disk)
    state = Vault.objects.get_or_create(agent_id=now.pk, defaults={"seq": 0})[0]
    is_soon = bool(edited) and state.fault_at is not None and timezone.now() - state.fault_at < RETRY_AFTER
    if is_soon:
        files.bring(edited)
    else:
        if state.fault and (owed := list(removing.owed(now).values_list("number", flat=True))):
            files.remove(owed)  # before anything that may fail again
        files.bring(_changed_since(now, state.seq))
    begins = not (is_soon or state.seq) and VaultFile.objects.filter(agent_id=now.pk).exists()
    if files.are_pages_stale or begins:
        files.rebuild()
    if not Agent.objects.filter(pk=now.pk, vault_path=now.vault_path).exists():
        forget(now)  # or the new vault would count these files as its own
        raise FileFault(*_ANOTHER_VAULT)
    if disk.put_aside:
        log.warning("changed files moved aside", agent=now.pk, number=len(disk.put_aside))
    if files.fault is not None:
        raise files.fault
    if not is_soon:
        unchanged = Vault.objects.filter(agent_id=now.pk, seq=state.seq)  # else it begins again
        with without_disk_sync():  # if that is lost, everything is up to date when it is tried again
            unchanged.update(seq=now.audit_seq, fault="", fault_at=None)


def _remove_erased(disk: Disk, agent: Agent) -> None:
    """The agent was erased: remove its files, then its vault."""
    removing.remove_all(disk, agent)
    disk.give_up()
    with transaction.atomic():
        forget(agent)
        Agent.objects.filter(pk=agent.pk, wrapped_key=b"").update(vault_path="")


def _changed_since(agent: Agent, seq: int) -> Iterator[int]:
    changes = Change.objects.filter(agent_id=agent.pk, seq__gt=seq)
    yield from changes.order_by("number").values_list("number", flat=True).distinct().iterator(chunk_size=2_000)


@contextmanager
def opened(agent: Agent) -> Iterator[Disk]:
    """The agent's vault, held for one writer. Raises FileFault, FileElsewhere, VaultBusy."""
    with held(Path(agent.vault_path)) as disk:
        mark = base.mark_of(agent)
        if not disk.require_nobody_elses(mark):
            rewrite(agent)  # before it is marked: a writer may be killed in between
            disk.claim(mark)
        yield disk


# --- what is known of a vault


def is_behind(agent: Agent) -> bool:
    """Whether there is something to write: edits since, a fault, or a folder without the vault's mark."""
    seen = Vault.objects.filter(agent_id=agent.pk).values_list("seq", "fault").first()
    return seen is None or seen[0] < agent.audit_seq or bool(seen[1]) or not _is_marked(agent)


def _is_marked(agent: Agent) -> bool:
    try:
        with looked_at(Path(agent.vault_path)) as disk:
            return disk is not None and disk.whose() == base.mark_of(agent)
    except FileFault:
        return False


def is_there(agent: Agent) -> bool:
    """Whether its folder exists."""
    return bool(agent.vault_path) and Path(agent.vault_path).is_dir()


def file_of(agent: Agent, number: int) -> str | None:
    """The path of a memory's file. None if it has none, or one of an earlier version."""
    return files_of(agent, [number]).get(number) if agent.vault_path else None


def files_of(agent: Agent, numbers: Sequence[int]) -> dict[int, str]:
    """The same for several memories of an agent with a vault: those that have one."""
    mine = Memory.objects.of(agent).numbered(numbers)
    versions = dict(mine.values_list("number", "version"))
    rows = VaultFile.objects.filter(agent_id=agent.pk, number__among=list(numbers), state=VaultFile.State.THERE)
    silo, found = Silo.for_agent(agent), {}
    for row in rows:
        path = Path(agent.vault_path) / Line.open(silo, row).path
        with suppress(OSError):  # this process may not look there
            if row.version == versions[row.number] and path.is_file():
                found[row.number] = str(path)
    return found


def files_or_reasons(agent: Agent, numbers: Sequence[int]) -> list[dict[str, str | None]]:
    """For each of these memories, `file`, and `no_file`: why it has none, and what to do."""
    files = files_of(agent, numbers) if agent.vault_path else {}
    why = why_no_file(agent) if len(files) < len(set(numbers)) else None
    return [{"file": files.get(number), "no_file": None if number in files else why} for number in numbers]


def why_no_file(agent: Agent) -> str:
    """Why a memory has no file, and what to do."""
    if not agent.vault_path:
        return f"no vault: run manage.py project init {agent.label} --vault"
    if not is_behind(agent):
        return "the memory is discarded, or its category is off"
    fault = Vault.objects.filter(agent_id=agent.pk).values_list("fault", flat=True).first()
    return f"it could not be written{f' ({fault})' if fault else ''}, and is tried again (manage.py rules status)"


# --- begin again


def begin_anew(agent: Agent) -> None:
    """Make the vault look at every memory again after the next commit."""
    Vault.objects.filter(agent_id=agent.pk).update(seq=0)


def rewrite(agent: Agent, categories: Collection[str] | None = None) -> None:
    """The same, and write every file again, or those of some categories: their names or what they show changes."""
    rows = VaultFile.objects.filter(agent_id=agent.pk)
    if categories is not None:
        mine = Memory.objects.of(agent).filter(category__in=categories)
        rows = rows.filter(number__in=mine.values("number"))
    rows.update(rules_version="")
    begin_anew(agent)


def forget(agent: Agent) -> None:
    """Remove what is known of its files. The files stay."""
    VaultFile.objects.filter(agent_id=agent.pk).delete()
    Vault.objects.filter(agent_id=agent.pk).delete()
