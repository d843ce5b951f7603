"""What audit entries did to memories: the numbers, tokens, dates and layers that went in and came out. Nothing is
decrypted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from audit.bulk import in_parts
from audit.models import Change
from memory.models.memories import layer_of
from memory.writing.edits import fields_of

PAGE = 100  # memories of an entry on one page
IN_LINE = 6  # memories on one side of a line
State = dict[str, Any]


class Changed(NamedTuple):
    """One memory before and after an entry. A new memory has no state before."""

    agent_id: int
    seq: int
    number: int
    before: State | None
    after: State | None

    @property
    def state(self) -> State:
        return self.after or self.before or {}

    @property
    def layers(self) -> list[str]:
        """The layers before and after. There is one if they are equal."""
        return list(dict.fromkeys(layer_of(each) for each in (self.before, self.after) if each))

    @property
    def tokens(self) -> list[int]:
        return list(dict.fromkeys(each["tokens"] for each in (self.before, self.after) if each))

    @property
    def is_merged(self) -> bool:
        """Whether the memory left its layer because another one replaced it."""
        return bool(self.before and self.after and self.after["superseded_by"] and not self.before["superseded_by"])

    @property
    def successor(self) -> int | None:
        found: int | None = self.after["superseded_by"] if self.after else None
        return found

    @property
    def what(self) -> str:
        """What happened, in words."""
        before, after = self.before, self.after
        if before is None or after is None:
            return "new" if after else "removed"
        if self.is_merged:
            return f"replaced by {self.successor}"
        found = []
        if layer_of(before) != layer_of(after):
            found.append({"discarded": "discarded", "beneath": "moved beneath"}.get(layer_of(after), "restored"))
        if before["digest"] != after["digest"]:
            found.append("rewritten" if after["digest"] else "redacted")
        if before["constitutional"] != after["constitutional"]:
            found.append("protected" if after["constitutional"] else "no longer protected")
        return ", ".join(found) or "details changed"


def of_entries(agent_id: int, seqs: Collection[int]) -> dict[int, list[Changed]]:
    """The changes of each of these entries, with at most PAGE + 1 memories for each entry."""
    found: defaultdict[int, list[Changed]] = defaultdict(list)
    rows = Change.objects.filter(agent_id=agent_id, seq__in=list(seqs)).order_by("seq", "number")
    for row in rows.iterator(chunk_size=500):
        if len(found[row.seq]) <= PAGE:
            found[row.seq].append(_changed(row))
    return dict(found)


def of_entry(agent_id: int, seq: int, after: int) -> list[Changed]:
    """The changes of one entry to memories with numbers above `after`, at most PAGE + 1."""
    rows = Change.objects.filter(agent_id=agent_id, seq=seq)
    return [_changed(row) for row in in_parts(rows, after=after, limit=PAGE + 1)]


def of_memory(agent_id: int, number: int) -> list[Changed]:
    """The last changes of one memory, newest first, at most PAGE."""
    return [_changed(row) for row in Change.objects.filter(agent_id=agent_id, number=number).order_by("-seq")[:PAGE]]


def _changed(row: Change) -> Changed:
    before, after = (None if kept is None else fields_of(bytes(kept)) for kept in (row.before, row.after))
    return Changed(row.agent_id, row.seq, row.number, before, after)


def line(changed: Sequence[Changed]) -> SafeString:
    """A short picture of an entry, such as "12, 40, 77 → 218: 96 → 31 tokens", or "254 replaced by 68"."""
    successors = {each.successor or 0 for each in changed if each.is_merged}
    went_in = [each for each in changed if each.before and each.number not in successors]
    came_out = [each for each in changed if each.before is None]
    is_replaced = not came_out and all(each.is_merged for each in went_in)
    context = {
        "successors": sorted(successors)[:IN_LINE] if is_replaced else [],
        "agent_id": changed[0].agent_id if changed else None,
        "went_in": went_in[:IN_LINE],
        "more_in": max(0, len(went_in) - IN_LINE),
        "came_out": came_out[:IN_LINE],
        "more_out": max(0, len(came_out) - IN_LINE),
        "kept": "" if came_out or not went_in or is_replaced else _kept(went_in),
        "is_journal": bool(came_out) and all(each.layers == ["journal"] for each in came_out),
        "tokens": (_active_tokens(each.before for each in changed), _active_tokens(each.after for each in changed)),
    }
    return SafeString(render_to_string("admin/parts/line.html", context).strip())


def _kept(changed: Sequence[Changed]) -> str:
    """What happened to memories, if an entry made no new ones."""
    words = list(dict.fromkeys("replaced" if each.is_merged else each.what for each in changed))
    return " or ".join(words) if len(words) < 3 else "changed"


def _active_tokens(states: Iterable[State | None]) -> int:
    return sum(state["tokens"] for state in states if state and layer_of(state) in ("core", "journal"))


def table(changed: Sequence[Changed]) -> SafeString:
    """The picture of an entry, and a table of at most PAGE changes with a link to the next ones."""
    shown = changed[:PAGE]
    context = {"line": line(shown), "changed": shown, "next": shown[-1].number if len(changed) > PAGE else None}
    return SafeString(render_to_string("admin/parts/changes.html", context))
