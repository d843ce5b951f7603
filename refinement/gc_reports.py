"""Reports of `gc`. A model writes them about an agent's log, in three sections. They are stored sealed."""

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from django.db.models import Max
from django.utils import timezone

from audit import redactions
from memory.models import Agent
from memory.policy import switches
from memory.silo.silo import Silo
from memory.writing import edits
from refinement.models import GcReport

FIELD = "gc"
LONGEST = 100_000  # characters, five times a reply of 4,096 tokens
SECTIONS = {"patterns_found": "Patterns Found", "repeated_work": "Repeated Work", "recommendations": "Recommendations"}
_HEADING = re.compile(rf"^\s{{0,3}}#{{1,6}}\s+({'|'.join(SECTIONS.values())})[\s:#]*$", re.MULTILINE | re.IGNORECASE)


def keep(agent: Agent, text: str, *, model: str, entries: int, left_out: int = 0, since: int | None = None) -> GcReport:
    """Store a sealed report with the agent's next number.

    If content was redacted after audit entry `since`, the report may quote this content. Then the report is marked as
    withdrawn, and its text is not stored. Raises Erased, MemoryDisabled. Raises FileFault if the agent was claimed.
    """
    with edits.locked(agent) as row:
        edits.require_same_owner(row, agent)
        edits.require_key(row)
        switches.require_on(row)
        is_withdrawn = since is not None and redactions.last(row) > since
        last = GcReport.objects.filter(agent=row).aggregate(last=Max("number"))["last"] or 0
        return GcReport.objects.create(
            agent=row,
            number=last + 1,
            at=timezone.now(),
            model=model,
            entries=entries,
            left_out=left_out,
            sealed=b"" if is_withdrawn else Silo.for_agent(row).seal_text(FIELD, last + 1, text[:LONGEST]),
            withdrawn_at=timezone.now() if is_withdrawn else None,
        )


def opened(agent: Agent, reports: Sequence[GcReport]) -> list[str]:
    """Decrypt the texts of these reports. The text of a withdrawn report is "". Raises MemoryDisabled."""
    switches.require_on(agent)
    silo = Silo.for_agent(agent)
    return [
        silo.open_text(FIELD, report.number, bytes(report.sealed)) if report.withdrawn_at is None else ""
        for report in reports
    ]


def sections(text: str) -> dict[str, str]:
    """A report's sections by name. The sections may have any order, and their headings may have any level. If two
    sections have the same name, the first section counts."""
    places = list(_HEADING.finditer(text))
    names = {heading.casefold(): name for name, heading in SECTIONS.items()}
    found: dict[str, str] = {}
    for place, after in zip_longest(places, places[1:]):
        section = text[place.end() : after.start() if after else len(text)].strip()
        found.setdefault(names[place[1].casefold()], section)
    return found


def withdraw(*, agent: Agent, **_: Any) -> None:
    """Remove the text of all reports of an agent, because they may quote removed content.

    This function receives the signal `removing`.
    """
    GcReport.objects.filter(agent=agent, withdrawn_at=None).update(sealed=b"", withdrawn_at=timezone.now())
