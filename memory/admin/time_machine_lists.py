"""What the Time Machine offers: the latest entries and sessions, and a chart over time whose marks lead to previews."""

import json
from math import ceil
from typing import Any

from django.db.models import OuterRef, Subquery, Sum
from django.utils import timezone

from audit.models import AuditEntry
from config.wording import several
from memory.admin import agent_parts
from memory.admin.base import charts
from memory.admin.base.forms import AdminForm
from memory.admin.base.texts import time_machine_url
from memory.models import Agent
from memory.time_machine.selection import Undone
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession

MAX_ENTRIES = 50  # entries in the list; for older entries, the person enters a number or a date
MAX_SESSIONS = 10  # sessions in the list


def latest(agent: Agent, choose: AdminForm) -> dict[str, Any]:
    """The form, and the latest entries and sessions, for the person to choose from.

    Each undone entry or session has the number of the rollback that undid it.
    """
    undone = Undone.of(agent)
    changing = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest")
    entries = changing.order_by("-seq")[:MAX_ENTRIES]
    own = changing.filter(session=OuterRef("number")).order_by().values("session")
    ended = RefinementSession.objects.filter(agent=agent).exclude(outcome=Outcome.OPEN)
    total = Subquery(own.annotate(sum=Sum("changes")).values("sum"))
    ended = ended.defer("shown", "plan", "summaries").annotate(sum=total).order_by("-number")
    rows = [(row, row.outcome.replace("_", " "), vars(row)["sum"] or 0) for row in ended[:MAX_SESSIONS]]
    undone_sessions.mark([row for row, *_ in rows])
    choose.fields["session"].widget.choices = [
        (row.number, f"{row.number}: {row.opened_at:%Y-%m-%d}, {row.tokens_before:,} → {row.tokens_after:,} tokens")
        for row, _, changes in rows
        if changes and not row.undone_by
    ]
    return _timeline(agent, undone, list(entries)) | {
        "choose": choose,
        "entries": [(entry, entry.operation.replace("_", " "), undone.by(entry.seq)) for entry in entries],
        "sessions": rows,
    }


def _timeline(agent: Agent, undone: Undone, latest: list[AuditEntry]) -> dict[str, Any]:
    """The chart of core memory, whose marks lead to previews, and the moments that a person can choose."""
    points = charts.points(agent)
    if not points:
        return {}
    edits = [
        charts.Mark(
            entry.at,
            entry.distinct_tokens,
            time_machine_url(agent.pk, "entry", entry.seq),
            f"entry {entry.seq}: {entry.operation.replace('_', ' ')}, {several(entry.changes, 'memory', 'memories')}",
            "undone" if undone.by(entry.seq) else "edit",
        )
        for entry in reversed(latest)
        if entry.session is None
    ]
    sessions = agent_parts.session_marks(agent, MAX_ENTRIES, time_machine_url)
    oldest, is_long = latest[-1], agent.audit_seq >= 2 * charts.MOST_POINTS  # a long trail has more steps than points
    steps = [] if is_long else [(int(1_000 * each.at.timestamp()), each.tokens) for each in points]
    first, last = (1_000 * at.timestamp() for at in (points[0].at, max(timezone.now(), points[-1].at)))
    step = max(1, int(last - first) // 1_000)  # milliseconds; a key moves the slider by one step
    return {
        "chart": charts.tokens_over_time(agent, points, [*edits, *sessions], name="Core memory over time"),
        "unmarked_before": oldest.at if points[0].seq < oldest.seq else None,
        "steps": json.dumps(steps),
        "slider": {"min": int(last) - step * ceil((last - first) / step), "max": int(last), "step": step},
    }
