"""Pictures of an agent's tokens over time and of the lineage of memories. The server draws them as SVG, from metadata.

A picture needs no script, its marks are links, and CSS gives it the colours of the theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from django.db.models import F
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from audit.models import AuditEntry
from memory.admin.base import links
from memory.models import Agent, Memory
from memory.time_machine.lineage import Walk

HEIGHT = 200  # pixels of the plot of tokens over time. Its width is the width of the page.
LEFT, TOP, BOTTOM = 60, 12, 28  # pixels around the plot of a chart with columns, before it is scaled
COLUMNS = (420, 230)  # width and height of a chart with columns
MOST_LABELS = 8
MOST_POINTS = 400
MOST_NODES, MOST_STEPS = 60, 8  # of a lineage
BOX = (132, 40)  # width and height of a memory in a lineage
GAP = (40, 12)  # two columns fit a phone
NAME_WIDTH = 14  # percent of a bar, for the name of a mark


def ticks(most: int, steps: int = 4) -> list[int]:
    """Whole numbers for an axis from 0 to at least `most`."""
    exact = max(1, -(-most // steps))
    power = 10 ** (len(str(exact)) - 1)
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= exact)
    return [step * each for each in range(-(-most // step) + 1)]


class Point(NamedTuple):
    """The size of core memory after an entry."""

    seq: int
    at: datetime
    tokens: int


class Mark(NamedTuple):
    """A linked mark in a chart."""

    at: datetime
    tokens: int
    url: str
    label: str
    kind: str  # a CSS class that says what it means


def points(agent: Agent) -> list[Point]:
    """The sizes of core memory over time. Of a long trail, every n-th entry and the last one."""
    every = max(1, agent.audit_seq // MOST_POINTS)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).order_by("seq")
    rows = entries.annotate(rest=F("seq") % every).filter(rest=0) if every > 1 else entries
    found = [Point(*row) for row in rows.values_list("seq", "at", "distinct_tokens")]
    if every > 1:
        found += [Point(*row) for row in entries.order_by("-seq").values_list("seq", "at", "distinct_tokens")[:1]]
    return found


def tokens_over_time(agent: Agent, found: Sequence[Point], marks: Iterable[Mark], *, name: str) -> SafeString:
    """A chart of core memory over time, with the budget, the target and linked marks. It is "" without entries."""
    if not found:
        return SafeString("")
    marks, limits = list(marks), {"target": agent.target_tokens, "budget": agent.budget_tokens}
    first, last = found[0].at, max(timezone.now(), found[-1].at)
    span = max((last - first).total_seconds(), 1.0)
    scale = ticks(max([agent.budget_tokens, *(each.tokens for each in found), *(each.tokens for each in marks), 1]))

    def x(at: datetime) -> float:
        """The place in percent of the width."""
        return round(100 * min(1.0, max(0.0, (at - first).total_seconds() / span)), 2)

    def y(tokens: int) -> float:
        return round(HEIGHT - HEIGHT * tokens / scale[-1], 1)

    steps = [f"M0 {y(found[0].tokens)}"] + [f"H{x(each.at)}V{y(each.tokens)}" for each in found]
    context = {
        "name": name,
        "height": HEIGHT,
        "line": "".join([*steps, "H100"]),
        "y_ticks": [(y(each), f"{each:,}") for each in scale],
        "x_ticks": [(x(each), text) for each, text in _dates(first, last)],
        "limits": [(limit, y(tokens), tokens) for limit, tokens in limits.items()],
        "marks": [(x(each.at), y(each.tokens), each) for each in marks],
        "kinds": {kind: kind if kind in ("edit", "undone") else f"session {kind}" for *_, kind in marks},
    }
    return SafeString(render_to_string("admin/parts/tokens.html", context))


def _dates(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """Five moments for the time axis."""
    form = "%d %b"
    if last - first < timedelta(days=2):
        form = "%H:%M" if last - first > timedelta(minutes=10) else "%H:%M:%S"
    return [(at, at.strftime(form)) for at in (first + (last - first) * share / 4 for share in range(5))]


def lineage(agent: Agent, numbers: Sequence[int]) -> SafeString:
    """A picture of what these memories were made from, and of what was made from them. It is "" if that is nothing."""
    walk, columns, edges = Walk(agent), {0: list(numbers)}, set[tuple[int, int]]()
    seen = set(numbers)
    for direction in (-1, 1):
        ends = list(numbers)
        for step in range(1, MOST_STEPS + 1):
            linked = walk.parents(ends) if direction < 0 else walk.children(ends)
            pairs = [(a, b) for a in ends for b in linked.get(a, ())]
            edges |= {(b, a) if direction < 0 else (a, b) for a, b in pairs}
            ends = [each for end in ends for each in sorted(linked.get(end, ())) if each not in seen]
            ends = list(dict.fromkeys(ends))[: max(0, MOST_NODES - len(seen))]
            if not ends:
                break
            seen |= set(ends)
            columns[direction * step] = ends
    drawn = {pair for pair in edges if set(pair) <= seen}
    return _drawn(agent, columns, drawn, set(numbers)) if drawn else SafeString("")


def _drawn(agent: Agent, columns: dict[int, list[int]], edges: set[tuple[int, int]], own: set[int]) -> SafeString:
    rows = Memory.objects.of(agent).numbered({each for column in columns.values() for each in column})
    memories = {row.number: row for row in rows.defer("sealed", "digest")}
    first, tallest = min(columns), max(map(len, columns.values()))
    height = tallest * (BOX[1] + GAP[1]) + GAP[1]
    places: dict[int, tuple[int, int]] = {}
    for depth, column in sorted(columns.items()):
        top = (height - len(column) * (BOX[1] + GAP[1]) + GAP[1]) // 2
        for place, number in enumerate(column):
            places[number] = ((depth - first) * (BOX[0] + GAP[0]) + 4, top + place * (BOX[1] + GAP[1]))
    context = {
        "size": (len(columns) * (BOX[0] + GAP[0]) - GAP[0] + 8, height),
        "box": BOX,
        "edges": [_edge(places[source], places[made]) for source, made in sorted(edges)],
        "nodes": [
            {
                "x": x,
                "y": y,
                "memory": memories[number],
                "url": links.url(agent.pk, "memory", number),
                "own": number in own,
            }
            for number, (x, y) in places.items()
            if number in memories
        ],
        "is_cut": len(places) >= MOST_NODES,
    }
    return SafeString(render_to_string("admin/parts/lineage.html", context))


def _edge(source: tuple[int, int], made: tuple[int, int]) -> str:
    """A curve from the right side of a box to the left side of another one."""
    (x1, y1), (x2, y2) = (source[0] + BOX[0], source[1] + BOX[1] // 2), (made[0], made[1] + BOX[1] // 2)
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def bar(tokens: int, marks: dict[str, int], *, before: int = 0) -> SafeString:
    """A bar of tokens, with marks such as the target and the budget. Its colour says whether the tokens are above the
    target or the budget. `before` is the size before a session."""
    most = 1.02 * max([1, tokens, before, *marks.values()])  # with space for the last mark
    context = {
        "tokens": tokens,
        "before": before,
        "width": round(100 * tokens / most, 1),
        "width_before": round(100 * before / most, 1),
        "marks": [(name, value, round(100 * value / most, 1)) for name, value in marks.items()],
        "names": _names({name: 100 * value / most for name, value in marks.items()}),
        "state": next((name for name in ("budget", "target") if tokens > marks.get(name, most)), "within"),
    }
    return SafeString(render_to_string("admin/parts/bar.html", context))


def _names(places: dict[str, float]) -> list[tuple[str, float]]:
    """The names of marks that have space at the left of their marks, each with its place in percent."""
    ordered = sorted(places.items(), key=itemgetter(1))
    before = [0.0, *(at for _, at in ordered)]
    return [(name, round(at, 1)) for (name, at), last in zip(ordered, before, strict=False) if at - last >= NAME_WIDTH]


class Chart(NamedTuple):
    """A picture with its title, and the figures of the table below it."""

    title: str
    unit: str
    picture: SafeString
    figures: list[tuple[str, str]]


def columns(title: str, unit: str, bars: Sequence[tuple[str, int, str]]) -> Chart:
    """A column for each (label, number, meaning). The meaning decides its colour. The picture is "" if all are 0."""
    figures = [(label, f"{value:,}") for label, value, _ in bars]
    if not any(value for _, value, _ in bars):
        return Chart(title, unit, SafeString(""), figures)
    scale, room = ticks(max(value for _, value, _ in bars)), (COLUMNS[0] - LEFT - 8) / len(bars)
    width, floor = min(40.0, room * 0.6), COLUMNS[1] - BOTTOM
    context = {
        "title": title,
        "size": COLUMNS,
        "left": LEFT,
        "y_ticks": [(round(floor - (floor - TOP) * each / scale[-1], 1), f"{each:,}") for each in scale],
        "bars": [
            {
                "x": round(LEFT + room * (place + 0.5) - width / 2, 1),
                "middle": round(LEFT + room * (place + 0.5), 1),
                "y": round(floor - (floor - TOP) * value / scale[-1], 1),
                "height": round((floor - TOP) * value / scale[-1], 1),
                "label": label if len(bars) <= MOST_LABELS or place % 2 else "",
                "text": f"{label}: {value:,} {unit}",
                "meaning": meaning,
            }
            for place, (label, value, meaning) in enumerate(bars)
        ],
        "width": round(width, 1),
    }
    return Chart(title, unit, SafeString(render_to_string("admin/parts/columns.html", context)), figures)
