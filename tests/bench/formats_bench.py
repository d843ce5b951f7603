"""Memories out and in, in each format: how many a second, beside JSON Lines, and whether more of them take more memory.
That is the peak resident size of a process that does one thing alone, for few and for ten times as many (`VmHWM`:
`ru_maxrss` is never less than that of the process that started it)."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from memory.access.authentication import agent_named
from memory.models import Agent
from memory.transfer import exporting, importing
from memory.transfer.export_formats import EXPORTS
from memory.transfer.exporting import Losses
from memory.transfer.formats import jsonl
from memory.transfer.importing import IMPORTS
from tests.bench import child, texts
from tests.bench.agents import ME, created, filled
from tests.bench.figures import Figure, at_most, beside

MOST = 16  # MiB that ten times as many may take more
LISTED = "memory-store"  # in which nothing leaves


def run(*, quick: bool) -> Iterator[Figure]:
    few, many = (1_000, 10_000) if quick else (10_000, 100_000)
    for count in (few, many):
        filled(f"all{count}", texts.lines(count, count))
    done: dict[tuple[str, str, int], dict[str, float]] = {}
    with TemporaryDirectory(dir=os.environ.get("VAR_DIR")) as folder:
        for name in IMPORTS:
            for count in (few, many):
                file = Path(folder, f"{name}-{count}")
                if name == LISTED:
                    _list(Path(folder, f"jsonl-{count}"), file)
                else:
                    done["out", name, count] = child.call("formats_bench", "do", "out", name, f"all{count}", str(file))
                slug = created(f"{name}{count}").slug
                done["in", name, count] = child.call("formats_bench", "do", "in", name, slug, str(file))
    for way, name in dict.fromkeys((way, name) for way, name, _ in done):
        rate = many / done[way, name, many]["seconds"]
        plain = many / done[way, "jsonl", many]["seconds"]
        yield beside(f"{many:,} {way} as {name}", rate, "/s", plain)
        grown = done[way, name, many]["peak"] - done[way, name, few]["peak"]
        yield at_most(f"… peak beyond that of {few:,}", grown, "MiB", MOST)


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


def do(way: str, name: str, slug: str, file: str) -> dict[str, float]:
    """The seconds that one export or import takes, and the peak of this process's memory."""
    agent = agent_named(f"acme/{slug}")
    started = time.perf_counter()
    do_one = _write if way == "out" else _read
    do_one(agent, name, Path(file))
    return {"seconds": time.perf_counter() - started, "peak": child.mebibytes("VmHWM")}


def _write(agent: Agent, name: str, file: Path) -> None:
    with file.open("wb") as written:
        for piece in EXPORTS[name].write(agent, exporting.memories(agent), Losses()):
            written.write(piece)


def _read(agent: Agent, name: str, file: Path) -> None:
    with file.open("rb") as read:
        if name == "jsonl":
            importing.check_lines(jsonl.lines_of("the file", read)).store(agent, ME)
        else:
            importing.check_file(read, name).store(agent, ME)
