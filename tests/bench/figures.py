"""What a bench measured, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

HEADINGS = ("what", "ours", "floor", "ratio", "target", "met")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `floor` is what plain SQL takes or reaches for the same; `met` is None without a target."""

    bench: str
    database: str
    what: str
    ours: float
    unit: str = ""
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.bench, self.database, self.what

    def cells(self) -> tuple[str, ...]:
        floor = "" if self.floor is None else shown(self.floor, self.unit)
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        met = "" if self.met is None else "✓" if self.met else "✗"
        return self.what, shown(self.ours, self.unit), floor, ratio, self.target, met


def shown(value: float, unit: str) -> str:
    digits = 0 if value == int(value) or abs(value) >= 1_000 else 1 if abs(value) >= 100 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f} {unit}".strip()


def rate(bench: str, database: str, what: str, ours: float, floor: float, at_least: float, unit: str = "/s") -> Figure:
    """Two rates, ours over the floor's."""
    ratio = ours / floor
    return Figure(bench, database, what, ours, unit, floor, ratio, f"≥ {at_least:g}", ratio >= at_least)


def at_most(bench: str, database: str, what: str, value: float, unit: str, limit: float) -> Figure:
    return Figure(bench, database, what, value, unit, target=f"≤ {shown(limit, unit)}", met=value <= limit)


def at_least(bench: str, database: str, what: str, value: float, unit: str, limit: float) -> Figure:
    return Figure(bench, database, what, value, unit, target=f"≥ {shown(limit, unit)}", met=value >= limit)


def line(figure: Figure) -> str:
    """How a bench's process tells the one that started it."""
    return "figure " + json.dumps(asdict(figure), ensure_ascii=False)


def read(text: str) -> Figure | None:
    return Figure(**json.loads(text.removeprefix("figure "))) if text.startswith("figure ") else None


def table(figures: Iterable[Figure]) -> str:
    """The figures of one bench on one database, in columns."""
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = zip(row, widths, (True, False, False, False, True, True), strict=True)
    return "  ".join(cell.ljust(width) if is_text else cell.rjust(width) for cell, width, is_text in cells).rstrip()
