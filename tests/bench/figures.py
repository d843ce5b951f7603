"""What a bench measured, and how it is shown."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

HEADINGS = ("what", "ours", "floor", "ratio", "target", "met")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `floor` is the same measured of plain SQL; `met` is None without a target. The process of a
    bench adds the names of the bench and the database."""

    what: str
    ours: float
    unit: str = ""
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    bench: str = ""
    database: str = ""

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


def beside(
    what: str, ours: float, unit: str, floor: float, *, least: float | None = None, most: float | None = None
) -> Figure:
    """A value and the floor's, with a target for their ratio, if there is one."""
    ratio = ours / floor
    if least is not None:
        return Figure(what, ours, unit, floor, ratio, f"≥ {least:g}", ratio >= least)
    if most is not None:
        return Figure(what, ours, unit, floor, ratio, f"≤ {most:g}", ratio <= most)
    return Figure(what, ours, unit, floor, ratio)


def at_most(what: str, value: float, unit: str, limit: float | None) -> Figure:
    """A value with a target. A limit of None is no target."""
    if limit is None:
        return Figure(what, value, unit)
    return Figure(what, value, unit, target=f"≤ {shown(limit, unit)}", met=value <= limit)


def at_least(what: str, value: float, unit: str, limit: float | None) -> Figure:
    if limit is None:
        return Figure(what, value, unit)
    return Figure(what, value, unit, target=f"≥ {shown(limit, unit)}", met=value >= limit)


def flat(what: str, mebibytes: float, limit: float) -> Figure:
    """By how much more memory a larger input needs."""
    return Figure(what, mebibytes, "MiB", target=f"≤ {limit:g} MiB (flat)", met=mebibytes <= limit)


def line(figure: Figure) -> str:
    """How a bench's process sends a figure to the process that started it."""
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
