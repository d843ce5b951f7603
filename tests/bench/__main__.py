"""Speed and size of the service, as ratios to plain SQL where there is something to compare with, targets beside them.

    python -m tests.bench [--quick] [--check] [--json FILE] [NAME …]

Makes databases and keys of its own: a SQLite file under var/bench, and a PostgreSQL database where BENCH_DATABASE_URL
names a server, or one on 127.0.0.1:5432 lets us in. Every bench runs on each in a process and a database of its own.
It measures, so it ends with 0 whatever the figures; with --check it ends with 1 when a target is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.bench import child, places
from tests.bench.figures import Figure, read, table

QUEUED = ("fleet", "beside")  # with workers: on PostgreSQL their queue is in Redis
ONCE = ("dedupe", "survival", "model", "vectors")  # what they measure does not depend on the database: on SQLite alone
SERVICE = """writes import memory formats knife due queries sessions rollback verify api compare recall retrieval
    context vault admin gc search mcp stores"""
BENCHES = (*SERVICE.split(), *QUEUED, *ONCE)


def main() -> int:
    options = _options()
    wanted = options.names or [name for name in BENCHES if _is_ready(name)]
    figures: list[Figure] = []
    failed: list[str] = []
    started = time.perf_counter()
    print(_machine())
    for kind in ("sqlite", "postgresql"):
        chosen = [name for name in BENCHES if name in wanted and (kind == "sqlite" or name not in ONCE)]
        if kind == "postgresql" and chosen and not places.postgresql():
            print("\nPostgreSQL: skipped. No BENCH_DATABASE_URL, and no server on 127.0.0.1:5432 that lets us in.")
            continue
        for name in chosen:
            found, went_well = _measured(name, kind, quick=options.quick)
            figures += found
            failed += [] if went_well else [f"{name} on {kind}"]
    _summary(figures, failed, time.perf_counter() - started)
    if options.json:
        options.json.write_text(
            json.dumps([asdict(figure) for figure in figures], ensure_ascii=False, indent=1), "utf-8"
        )
    missed = any(figure.met is False for figure in figures)
    return 1 if failed or (options.check and missed) else 0


def _is_ready(name: str) -> bool:
    """Whether everything is here that a bench needs. `model` builds a server, so it runs only if it is named."""
    return name != "model" and (name != "survival" or bool(places.ledgers()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES) + " (default: all but model)")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, about 13 minutes")
    parser.add_argument("--check", action="store_true", help="end with 1 when a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="what compare refines (JSON Lines)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="has locomo/*.memories.jsonl, for search and survival")
    options = parser.parse_args()
    if options.data:
        os.environ["PALIMPSEST_DATA"] = str(options.data.resolve(strict=True))
    if options.ledger:
        os.environ["BENCH_LEDGER"] = str(options.ledger.resolve(strict=True))
    unknown = set(options.names) - set(BENCHES)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    return options


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    version = sys.version.split()[0]
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {version}, load {load:.1f} at the start"


def _measured(name: str, kind: str, *, quick: bool) -> tuple[list[Figure], bool]:
    """Run one bench on an empty database, showing its table when it is done."""
    print(f"\n== {name}, {kind}", flush=True)
    with (
        places.folder() as folder,
        places.database(kind, folder) as url,
        places.queue(kind if name in QUEUED else "sqlite", folder) as queue,
    ):
        done = subprocess.run(
            child.command(f"{name}_bench", "run", quick),
            env=places.environment(folder, url, queue),
            cwd=places.ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    figures = [figure for text in done.stdout.splitlines() if (figure := read(text))]
    if figures:
        print(table(figures), flush=True)
    if done.returncode:
        print(f"{name} on {kind} failed with {done.returncode}", file=sys.stderr)
    return figures, not done.returncode


def _summary(figures: list[Figure], failed: list[str], seconds: float) -> None:
    judged = [figure for figure in figures if figure.met is not None]
    missed = [figure for figure in judged if not figure.met]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} targets met, in {seconds:.0f} seconds.")
    for figure in missed:
        print(f"  ✗ {figure.database}, {figure.bench}: {figure.what}")
    for what in failed:
        print(f"  failed: {what}")


if __name__ == "__main__":
    sys.exit(main())
