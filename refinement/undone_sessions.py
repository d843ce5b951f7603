"""Which sessions were rolled back. It is read from the trail, because a rollback changes no row of a session."""

from __future__ import annotations

from collections.abc import Collection

from memory.time_machine.undone import sessions_undone
from refinement.models import Outcome, RefinementSession


def note(sessions: Collection[RefinementSession]) -> None:
    """Set `undone_by` of each session, in one query at most. An open session cannot be undone."""
    ended = [session for session in sessions if session.outcome != Outcome.OPEN]
    keys = [(session.agent_id, session.number) for session in ended]
    found = sessions_undone(keys, min(session.opened_at for session in ended)) if ended else {}
    for session in sessions:
        session.undone_by = found.get((session.agent_id, session.number))
