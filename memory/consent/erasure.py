"""Erasure: destroy an agent's data key, so that nobody can decrypt its memories.

The rows and the audit trail stay, and the trail can still be verified. Older backups contain the
wrapped key. Such a backup can be decrypted until the backup is deleted or the key-encryption key is retired.
`memory/consent/requests.py` handles the requests.
"""

from dataclasses import dataclass
from functools import partial

from django.db import transaction

from audit import disk
from audit.models import AuditEntry, Operation
from audit.trail import Actor
from memory.consent import requests
from memory.models import (
    Agent,
    CleanupDecision,
    Creation,
    Embedding,
    HistoryAnalysis,
    Memory,
    Recall,
    RecordedSession,
    Store,
    Vector,
)
from memory.search import cache
from memory.silo import keys
from memory.silo.silo import forget_unwrapped
from memory.transfer import migration
from memory.vault import removing
from memory.writing import edits

_DELETED = (Creation, Recall, RecordedSession, CleanupDecision, HistoryAnalysis, Store, Vector, Embedding)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of an erasure, or of its preview. They say what becomes unreadable."""

    request: int | None  # None for a preview
    entry: int | None  # None for a preview
    memories: int  # also counts discarded memories
    entries: int  # number of entries in the audit trail before the erasure
    silo_key: str  # id of the key-encryption key that wrapped the data key; it decrypts older backups
    others: int  # number of other agents whose data keys are wrapped by the silo key
    file: str  # the memory file, which is not encrypted and is not deleted; empty if there is none
    vault: str  # the vault, whose files are deleted; empty if there is none
    former_vaults: tuple[str, ...]  # folders that were the vault before; their files stay


def preview(agent: Agent) -> Figures:
    """Return the figures of `erase`, and change nothing. Raises Erased."""
    with edits.locked(agent) as row:
        return _figures(row, None, None)


def erase(agent: Agent, request: int, actor: Actor) -> Figures:
    """Carry out a request for erasure, in the name of the agent's side. An open refinement session ends, and no
    other session becomes due.

    Raises ConsentRequired, RequestNotFound, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        requests.require_decidable(row, request, actor, Operation.ERASURE_REQUESTED)
        requests.removing.send(Agent, agent=row, why="erasure")
        for forget in (cache.forget, forget_unwrapped):  # before the files are deleted, which takes longer
            transaction.on_commit(partial(forget, row.pk))
        with edits.begin(row, Operation.ERASED, actor, is_notice=True) as edit:
            figures = _figures(edit.agent, request, edit.seq)
            paths = {"memory_path": figures.file, "vault_path": figures.vault}
            edit.detail = {"request": request, "silo_key": figures.silo_key} | {k: v for k, v in paths.items() if v}
            disk.empty_log_on_commit()
            for rows in _DELETED:
                rows.objects.filter(agent_id=row.pk).delete()
            migration.forget(row)
            edit.agent.wrapped_key, edit.agent.due_at, edit.agent.memory_path = b"", None, ""
            edit.agent.save(update_fields=["wrapped_key", "memory_path"])
            edit.finish(always=True)
    return figures


def _figures(agent: Agent, request: int | None, entry: int | None) -> Figures:
    edits.require_key(agent)
    silo_key = keys.wrapping_key_id(bytes(agent.wrapped_key))
    return Figures(
        request=request,
        entry=entry,
        memories=Memory.objects.of(agent).count(),
        entries=AuditEntry.objects.filter(agent_id=agent.pk).count(),
        silo_key=silo_key,
        others=keys.wrapped_by(silo_key) - 1,
        file=agent.memory_path,
        vault=agent.vault_path,
        former_vaults=removing.former_paths(agent),
    )
