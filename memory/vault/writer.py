"""Sync a vault with its silo: after each commit, write, move or remove the files of the changed memories.

The audit trail shows what to sync. The vault's row has the number of the last synced entry. Each file's row has the
version of the memory that was written. After an error, the number of the last synced entry does not change. So the next
edit or a worker retries all changes after this entry. Files that are up to date are skipped.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import structlog
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from django.utils import timezone

from audit import redactions
from audit.models import Change
from config import PROGRAM
from memory.access import authority
from memory.errors import FileFault, Invalid, SealBroken
from memory.models import Agent, Memory, Vault, VaultFile
from memory.policy import switches
from memory.silo.silo import Opened, Silo
from memory.vault import base, layout, removing, rendering
from memory.vault.base import locked, unlocked
from memory.vault.disk import LOCK, Disk
from memory.vault.files import Files
from memory.vault.layout import Line
from memory.writing import edits

CAUGHT_UP_AT_ONCE = 100  # vaults
MOST_SECONDS = 5  # after which no other vault is synced; a locked vault takes a second
RETRY_AFTER = timedelta(minutes=1)  # between two retries by edits after an error; a worker can retry earlier
_ANOTHER_VAULT = "The vault path of this agent has changed. Try again.", "the vault path has changed"

log = structlog.get_logger("palimpsest.vault")


def sync_after_commit(*, agent: Agent, memories: Sequence[Memory], **_: object) -> None:
    """Handle the signal `edited`. The vault is synced after the commit and before the caller continues."""
    if agent.vault_path:
        numbers = [memory.number for memory in memories]
        transaction.on_commit(partial(try_sync, agent.pk, numbers, agent=agent if agent.wrapped_key else None))


def try_sync(agent_id: int, edited: Sequence[int] = (), *, agent: Agent | None = None) -> None:
    """Sync the agent's vault. An error is logged and stored but not raised, because the edit is already committed. For
    one minute after an error, an edit syncs only the files of the memories in `edited`."""
    with faults_noted(agent_id):
        agent = agent or Agent.objects.only("vault_path", "created_at").get(pk=agent_id)
        if agent.vault_path:
            sync(agent, edited)


@contextmanager
def faults_noted(agent_id: int) -> Iterator[None]:
    """Log and store an error of the vault instead of raising it."""
    try:
        yield
    except FileFault as fault:
        _note_fault(agent_id, fault.reason)
    except Exception as fault:  # such as a missing key; the log has only the error's class and traceback
        log.error("vault not followed", agent=agent_id, exc_info=fault)
        _note_fault(agent_id, type(fault).__name__)


def _note_fault(agent_id: int, reason: str) -> None:
    log.error("vault not followed", agent=agent_id, reason=reason)
    values = {"fault": reason[:200], "fault_at": timezone.now()}
    with suppress(DatabaseError), transaction.atomic():  # the error is in the log
        Vault.objects.update_or_create(agent_id=agent_id, defaults=values, create_defaults=values | {"seq": 0})


def catch_up() -> None:
    """Sync the vaults that need a sync. Workers call this function. Vaults that are behind and have no error come
    first. Then come the vaults with an error, the oldest error first. Vaults with an emptied folder come last.
    They have a time limit of their own, so that locked vaults do not block them."""
    vault = Q(vault__isnull=True) | Q(vault__seq__lt=F("audit_seq")) | ~Q(vault__fault="")
    behind = Agent.objects.filter(vault, ~Q(vault_path="")).order_by(F("vault__fault_at").asc(nulls_first=True), "pk")
    late = list(behind.values_list("pk", flat=True)[:CAUGHT_UP_AT_ONCE])
    others = Agent.objects.exclude(vault_path="").exclude(pk__in=late).order_by("pk").values_list("pk", "vault_path")
    emptied = (pk for pk, path in others.iterator() if Path(path).is_dir() and not Path(path, LOCK).exists())
    for agents in (late, islice(emptied, CAUGHT_UP_AT_ONCE)):
        until = time.monotonic() + MOST_SECONDS
        for agent_id in agents:
            try_sync(agent_id)
            if time.monotonic() >= until:
                break


def sync(agent: Agent, edited: Sequence[int] = ()) -> None:
    """Sync the agent's vault like `try_sync`, but raise errors. Raises FileFault, and the errors of a silo."""
    with opened(agent) as disk:
        sync_locked(agent, disk, edited)


def sync_locked(agent: Agent, disk: Disk, edited: Sequence[int] = ()) -> None:
    """Sync a locked vault. If a file cannot be written, the other files are still written. Then the first error is
    raised."""
    now = Agent.objects.select_related("tenant").get(pk=agent.pk)  # read under the lock
    authority.require(now)
    if now.vault_path != agent.vault_path:
        raise FileFault(*_ANOTHER_VAULT)
    if not now.wrapped_key:
        _remove_erased(disk, now)
        return
    state = Vault.objects.get_or_create(agent_id=now.pk, defaults={"seq": 0})[0]
    files = Files(now, disk)
    is_soon = bool(edited) and state.fault_at is not None and abs(timezone.now() - state.fault_at) < RETRY_AFTER
    since = state.seq if state.seq <= now.audit_seq else 0  # only SQL can set a higher number
    if is_soon:
        files.sync(edited)
    else:
        # SQL can hide that an earlier sync failed.
        is_left = state.fault or redactions.last(now)
        if is_left and (numbers := list(removing.pending(now).values_list("number", flat=True))):
            files.remove(numbers)  # first, because a later step may fail
        files.sync(sorted({*edited, *_changed_since(now, since)}))
    begins = not (is_soon or since) and VaultFile.objects.filter(agent_id=now.pk).exists()
    if files.are_pages_stale or begins:
        files.rebuild()
    _require_vault(now)
    if disk.moved_aside:
        log.warning("changed files moved aside", agent=now.pk, number=len(disk.moved_aside))
    if files.fault is not None:
        raise files.fault
    if not is_soon:
        not_reset = Vault.objects.filter(agent_id=now.pk, resets=state.resets)
        not_reset.update(seq=now.audit_seq, fault="", fault_at=None)


def _remove_erased(disk: Disk, agent: Agent) -> None:
    """Remove the files of an erased agent, the mark of its vault, and its vault path."""
    removing.remove_all(disk, agent)
    disk.give_up()
    with transaction.atomic():
        forget(agent)
        row = Agent.objects.select_for_update().get(pk=agent.pk)
        authority.require(row)
        if not row.wrapped_key:
            row.vault_path = ""
            authority.sign(row)
            row.save(update_fields=["vault_path", *authority.SIGNATURE])


def _changed_since(agent: Agent, seq: int) -> Iterator[int]:
    changes = Change.objects.filter(agent_id=agent.pk, seq__gt=seq)
    yield from changes.order_by("number").values_list("number", flat=True).distinct().iterator(chunk_size=2_000)


@contextmanager
def opened(agent: Agent) -> Iterator[Disk]:
    """Open and lock the agent's vault. Raises FileFault, FileOutsideRoots, VaultBusy."""
    authority.require(agent)
    with locked(Path(agent.vault_path)) as disk:
        mark = base.mark_of(agent)
        if not disk.require_no_other_owner(mark):
            rewrite(agent)  # this happens before the mark is written, because the writer may be killed
            disk.claim(mark)
        yield disk


# --- the state of a vault


def is_behind(agent: Agent) -> bool:
    """Return whether the vault needs a sync. This is the case if there are newer edits, if the last sync had an error,
    or if the folder does not have the vault's mark."""
    seen = Vault.objects.filter(agent_id=agent.pk).values_list("seq", "fault").first()
    return seen is None or seen[0] < agent.audit_seq or bool(seen[1]) or not _is_marked(agent)


def _is_marked(agent: Agent) -> bool:
    with suppress(FileFault), unlocked(Path(agent.vault_path)) as disk:
        return disk.whose() == base.mark_of(agent)
    return False


def is_there(agent: Agent) -> bool:
    """Return whether the vault's folder exists."""
    return bool(agent.vault_path) and Path(agent.vault_path).is_dir()


def files_of(agent: Agent, numbers: Sequence[int]) -> dict[int, str]:
    """Return a dict from the numbers of these memories to the paths of their files. A memory without a current file
    is not in the result."""
    versions = dict(Memory.objects.of(agent).numbered(numbers).values_list("number", "version"))
    rows = VaultFile.objects.filter(agent_id=agent.pk, number__among=list(numbers), state=VaultFile.State.THERE)
    silo, found = Silo.for_agent(agent), {}
    for row in rows:
        path = Path(agent.vault_path) / Line.open(silo, row).path
        with suppress(OSError):  # not readable by this process
            if row.version == versions[row.number] and path.is_file():
                found[row.number] = str(path)
    return found


def files_or_reasons(agent: Agent, numbers: Sequence[int]) -> list[dict[str, str | None]]:
    """Return a dict for each memory. `file` is the path of its file. If there is no file, `no_file` is the reason, and
    says what to do."""
    files = files_of(agent, numbers) if agent.vault_path else {}
    why = _why_no_file(agent) if len(files) < len(set(numbers)) else None
    return [{"file": files.get(number), "no_file": None if number in files else why} for number in numbers]


def _why_no_file(agent: Agent) -> str:
    """Return the reason why a memory has no file, and what to do."""
    if not agent.vault_path:
        return f"the agent has no vault. To create one, run {PROGRAM} project init {agent.label} --vault"
    if not is_behind(agent):
        return "the memory is discarded or beneath, or its category is off"
    fault = Vault.objects.filter(agent_id=agent.pk).values_list("fault", flat=True).first()
    return f"the file could not be written{f' ({fault})' if fault else ''}; a worker retries ({PROGRAM} rules status)"


def open_file(agent: Agent, data: bytes) -> Opened:
    """Decrypt the sealed block of a file. Only the agent itself may do this. Raises Invalid, SealBroken, Erased,
    MemoryDisabled, CategoryDisabled."""
    edits.require_key(agent)
    switches.require_on(agent)
    info = rendering.read_file(data)
    if info is None:
        raise Invalid("file", "is not the file of a memory")
    if info.sealed is None:
        raise Invalid("file", "is not sealed: you can read it directly")
    switches.require_readable(agent, edits.fetch(agent, [info.number]))
    return Silo.for_agent(agent).open_sealed(info.number, info.sealed)


# --- resetting a vault


def _require_vault(agent: Agent) -> None:
    """Raise FileFault if the agent has another vault now. If it has none, delete the rows that were just written."""
    path = Agent.objects.values_list("vault_path", flat=True).get(pk=agent.pk)
    if path != agent.vault_path:
        if not path:
            forget(agent)
        raise FileFault(*_ANOTHER_VAULT)


def reset(agent: Agent) -> None:
    """Make the next sync compare the file of every memory."""
    Vault.objects.filter(agent_id=agent.pk).update(seq=0, resets=F("resets") + 1)


def rewrite(agent: Agent, categories: Collection[str] | None = None) -> None:
    """Make the next sync write every file again. Call this when names or contents of files change. With `categories`,
    only the files of these categories are written again."""
    reset(agent)  # first, in the order of a sync
    rows = VaultFile.objects.filter(agent_id=agent.pk)
    if categories is not None:
        rows = rows.filter(number__in=Memory.objects.of(agent).filter(category__in=categories).values("number"))
    rows.update(rules_version="")


def forget(agent: Agent) -> None:
    """Delete the database rows of the vault. The files stay."""
    Vault.objects.filter(agent_id=agent.pk).delete()  # first, in the order of a sync
    VaultFile.objects.filter(agent_id=agent.pk).delete()


def leave(agent: Agent, path: Path) -> None:
    """Forget the vault at `path` of an agent whose row is locked. Files of redacted memories that are still there are
    removed after the commit, at their known paths, also while another process has the folder. So are their index pages,
    which have the first words. The log has the errors."""
    silo, lines = Silo.for_agent(agent), []
    for row in removing.pending(agent):
        with suppress(SealBroken):
            lines.append(Line.open(silo, row))
    forget(agent)
    transaction.on_commit(partial(_remove_known, agent, path, lines))


def _remove_known(agent: Agent, folder: Path, lines: Iterable[Line]) -> None:
    for line in lines:
        try:
            with unlocked(folder) as disk:
                disk.require_no_other_owner(base.mark_of(agent))
                for path in (*layout.everywhere(line.path), line.page()):
                    disk.remove(path)
        except FileFault as fault:
            log.error("redacted file not removed", agent=agent.pk, reason=fault.reason)
