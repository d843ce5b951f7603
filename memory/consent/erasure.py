"""Erasing a silo: the agent's data key is destroyed, and with it all that the agent's memories say.

Rows and trail stay, and verify; nothing here opens them again. With a backup that still holds the wrapped key they
open until it ages out, or the key-encryption key that wrapped it is retired. Asked for and agreed to as
`memory/consent/removal_requests.py` has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from audit import disk
from audit.models import AuditEntry, Operation
from audit.trail import Actor
from memory.consent import removal_requests, signals
from memory.models import Agent, CleanupDecision, Creation, HistoryAnalysis, Memory, Recall, RecordedSession
from memory.search import cache
from memory.silo import keys
from memory.silo.silo import forget_unwrapped
from memory.transfer import migration
from memory.vault import removing
from memory.writing import edits


@dataclass(frozen=True, slots=True)
class Figures:
    """What an erasure makes unreadable, or made so, in numbers."""

    request: int | None  # None for a preview
    entry: int | None  # None until it is carried out
    memories: int  # discarded ones included
    entries: int  # of the trail, up to then
    silo_key: str  # the id of the key-encryption key that wrapped the data key: with it, an older backup opens
    others: int  # agents whose data keys it wraps as well
    file: str  # its memory file, which no key seals, and which stays; empty: none
    vault: str  # its vault's folder, whose files are removed; empty: none
    former_vaults: tuple[str, ...]  # folders that were its vault once: what is there stays


def preview(agent: Agent) -> Figures:
    """What `erase` would do. Changes nothing. Raises Erased."""
    with edits.locked(agent) as row:
        return _figures(row, None, None)


def erase(agent: Agent, request: int, actor: Actor) -> Figures:
    """Carry out a request, on the agent's side. An open refinement session ends; no other is ever due.

    Raises ConsentNeeded, NoRequest, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        removal_requests.to_settle(row, request, actor, Operation.ERASURE_REQUESTED)
        signals.removing.send(Agent, agent=row, why="erasure")
        transaction.on_commit(lambda: _forget(row.pk))  # first: files take their time
        with edits.begin(row, Operation.ERASED, actor, is_notice=True) as edit:
            figures = _figures(edit.agent, request, edit.seq)
            edit.detail = {"request": request, "silo_key": figures.silo_key}
            edit.detail |= {"memory_path": figures.file} if figures.file else {}
            edit.detail |= {"vault_path": figures.vault} if figures.vault else {}
            disk.empty_log_on_commit()
            for rows in (Creation, Recall, RecordedSession, CleanupDecision, HistoryAnalysis):
                rows.objects.filter(agent_id=row.pk).delete()
            migration.forget(row)
            edit.agent.wrapped_key, edit.agent.due_at, edit.agent.memory_path = b"", None, ""
            edit.agent.save(update_fields=["wrapped_key", "memory_path"])
            edit.finish(always=True)
    return figures


def _forget(agent_id: int) -> None:
    cache.forget(agent_id)
    forget_unwrapped(agent_id)


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
        former_vaults=removing.former(agent),
    )
