"""Which sessions were taken back: derived from the trail, as no row of theirs changes when the Time Machine does."""

from __future__ import annotations

from collections.abc import Iterable

from memory.time_machine.undone import sessions_undone
from refinement.models import Outcome, RefinementSession


def note(sessions: Iterable[RefinementSession]) -> None:
    """Set each one's `undone_by`. One query however many; none for sessions that are open."""
    over = []
    for session in sessions:
        session.undone_by = None
        if session.outcome != Outcome.OPEN:
            over.append(session)
    if over:
        since = min(session.opened_at for session in over)
        found = sessions_undone([(session.agent_id, session.number) for session in over], since)
        for session in over:
            session.undone_by = found.get((session.agent_id, session.number))
