"""Several runs as one Markdown table: python -m tests.bench.report RUN.json … (made by `python -m tests.bench --json`).

Each cell is the median; the spread of the runs stands behind it. A target counts as met when every run met it.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import Figure, shown


def main(files: Sequence[str]) -> None:
    runs = [[Figure(**each) for each in json.loads(Path(file).read_text("utf-8"))] for file in files]
    together: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in (figure for run in runs for figure in run):
        together.setdefault(figure.key, []).append(figure)
    heading = None
    for (bench, database, _), figures in together.items():
        if heading != (bench, database):
            heading = bench, database
            print(f"\n### {bench}, {database}\n")
            print("| what | ours | floor | ratio | target | met |\n| --- | ---: | ---: | ---: | --- | --- |")
        print(row(figures))


def row(figures: Sequence[Figure]) -> str:
    first = figures[0]
    ours = spread([figure.ours for figure in figures], first.unit)
    floor = spread([figure.floor for figure in figures if figure.floor is not None], first.unit)
    ratio = spread([figure.ratio for figure in figures if figure.ratio is not None], "")
    met = "" if first.met is None else "✓" if all(figure.met for figure in figures) else tally(figures)
    return f"| {first.what} | {ours} | {floor} | {ratio} | {first.target} | {met} |"


def tally(figures: Sequence[Figure]) -> str:
    return f"✗ ({sum(bool(figure.met) for figure in figures)} of {len(figures)})"


def spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    middle = shown(statistics.median(values), unit)
    low, high = shown(min(values), ""), shown(max(values), "")
    return middle if low == high else f"{middle} ({low}–{high})"


if __name__ == "__main__":
    main(sys.argv[1:])
