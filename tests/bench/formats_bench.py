"""Memories out and in, in each format: how many a second, beside JSON Lines, and whether more of them take more memory.
That is the peak resident size of a process that does one thing alone, for few and for ten times as many (`VmHWM`:
`ru_maxrss` is never less than that of the process that started it).

    python -m tests.bench.formats_bench out|in FORMAT AGENT FILE    is such a process
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.figures import Figure, at_most

MOST = 16  # MiB that ten times as many may take more
LISTED = "memory-store"  # in which nothing leaves


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    from audit.trail import Actor
    from memory.agents import lifecycle
    from memory.transfer.formats import jsonl
    from memory.transfer.importing import IMPORTS
    from tests.bench import texts

    few, many = (1_000, 10_000) if quick else (10_000, 100_000)
    me = Actor.operator("bench")
    for count in (few, many):
        agent, _ = lifecycle.create("acme", f"all{count}", model="builtin/dedupe", actor=me)
        jsonl.load(agent, texts.lines(count, count), me)
    done: dict[tuple[str, str, int], dict[str, float]] = {}
    with TemporaryDirectory(dir=os.environ.get("VAR_DIR")) as folder:
        for name in IMPORTS:
            for count in (few, many):
                file = Path(folder, f"{name}-{count}")
                if name == LISTED:
                    _list(Path(folder, f"jsonl-{count}"), file)
                else:
                    done["out", name, count] = _apart("out", name, f"all{count}", file)
                slug = f"{name}{count}"
                lifecycle.create("acme", slug, model="builtin/dedupe", actor=me)
                done["in", name, count] = _apart("in", name, slug, file)
    for way, name in dict.fromkeys((way, name) for way, name, _ in done):
        rate = many / done[way, name, many]["seconds"]
        plain = many / done[way, "jsonl", many]["seconds"]
        yield Figure("formats", database, f"{many:,} {way} as {name}", rate, "/s", plain, rate / plain)
        grown = done[way, name, many]["peak"] - done[way, name, few]["peak"]
        yield at_most("formats", database, f"… peak beyond that of {few:,}", grown, "MiB", MOST)


def _list(lines: Path, to: Path) -> None:
    """The same memories as a memory store lists them."""
    with lines.open(encoding="utf-8") as read, to.open("w", encoding="utf-8") as written:
        between = '{"data": ['
        for line in read:
            memory = json.loads(line)
            each = {"type": "memory", "id": f"mem_{memory['id']}", "content": memory["content"]}
            written.write(between + json.dumps(each | {"created_at": memory["origin"]}))
            between = ",\n"
        written.write('], "next_page": null}')


def _apart(way: str, name: str, slug: str, file: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.formats_bench", way, name, slug, str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _do(way: str, name: str, slug: str, file: Path) -> None:
    from audit.trail import Actor
    from memory.access.authentication import agent_named
    from memory.transfer import exporting, importing
    from memory.transfer.export_formats import EXPORTS
    from memory.transfer.exporting import NotHeld
    from memory.transfer.formats import jsonl

    agent: Any = agent_named(f"acme/{slug}")
    me = Actor.operator("bench")
    if way == "out":
        with file.open("wb") as written:
            for piece in EXPORTS[name].write(agent, exporting.memories(agent), NotHeld()):
                written.write(piece)
        return
    with file.open("rb") as read:
        if name == "jsonl":
            jsonl.load(agent, jsonl.lines_of("the file", read), me)
        else:
            importing.surveyed(importing.IMPORTS[name].read(read, "")).store(agent, me)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    way, name, slug, file = sys.argv[1:]
    started = time.perf_counter()
    _do(way, name, slug, Path(file))
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak": peak()}))


def peak() -> float:
    """MiB; on Linux alone."""
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    [told] = [line for line in status if line.startswith("VmHWM:")]
    return int(told.split()[1]) / 1024


if __name__ == "__main__":
    main()
