"""`python -m tests.fault.killing_vaults FOLDER KILLS SEED`: kill edits of an agent with a vault, and see what is left.

A process of its own, without threads of its own, so that it can fork: each child makes some edits and kills itself by
SIGKILL before or after the n-th thing that it does to a file, or commits. Points are taken at random from each kind in
turn. What it leaves is then mended by `memory_rules index --repair`, and compared. Prints one line of JSON. Its
database is that of FOLDER (tests.fault.killing), its vault a folder beside it; the next child goes on with what the
last one left, and after TOGETHER of them all begins as it was prepared.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from tests.fault.killing import choose, in_child, reset_to

CALLS = ("open", "write", "fsync", "link", "replace", "rename", "unlink", "mkdir")
CATEGORIES = ("technical", "contextual", "personal", "topic", "credentials")
TOGETHER = 8
LENGTH = 6_000  # characters, so that a file is some pages


class Deadly:
    """The system's calls on files below a folder, counted, and one of them the last."""

    def __init__(self, deadly: int | None) -> None:
        self.deadly, self.passed = deadly, []  # type: tuple[int | None, list[str]]

    def pass_one(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.pass_one(f"before {name}")
            done = do(*arguments, **options)
            self.pass_one(f"after {name}")
            return done

        return watched

    def half(self, write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
        """A file that is half written is flushed and read by others as it is."""

        def torn(number: int, data: bytes) -> int:
            self.pass_one("before write")
            written = write(number, data[: max(1, len(data) // 2)])
            self.pass_one("half a write")
            return written

        return torn


def agent() -> Any:
    from memory.models import Agent

    return Agent.objects.select_related("tenant").get()


def edits(seed: int) -> None:
    """One of each kind, of memories taken at random. What is refused is refused."""
    from audit.trail import Actor
    from memory.errors import MemoryFault
    from memory.models import Memory
    from memory.policy.validation import Draft
    from memory.writing import operations

    dice, me = random.Random(seed), Actor.person("pat@acme.test")
    text = lambda: f"{dice.choice(('heather', 'moss', 'fern'))} {dice.random()} " + "x" * dice.randint(1, LENGTH)  # noqa: E731
    drafts = [Draft(text(), category=name, project="site", tags=(f"service:s{dice.random()}",)) for name in CATEGORIES]
    operations.remember(agent(), drafts, me)
    numbers = Memory.objects.filter(source="agent").order_by("number").values_list("number", flat=True)
    there = list(numbers.filter(discarded_at=None))
    for do in (
        lambda: operations.revise(agent(), dice.choice(there), me, content=text()),
        lambda: operations.discard(agent(), dice.sample(there, 2), me),
        lambda: operations.revise(agent(), dice.choice(there[-5:]), me, content=text()),
        lambda: operations.restore(agent(), [dice.choice(list(numbers.exclude(discarded_at=None)))], me),
        lambda: operations.remember(agent(), drafts[:2], me),
    ):
        try:
            do()
        except MemoryFault:
            continue


def deadly(seed: int, point: int | None, tell: Callable[[list[str]], None]) -> Callable[[], None]:
    def run() -> None:
        from django.db import connection

        watched = Deadly(point)
        connection.ensure_connection()
        connection._commit = watched.around("commit", connection._commit)
        for name in CALLS:
            calls = watched.half if name == "write" else lambda do, name=name: watched.around(name, do)
            setattr(os, name, calls(getattr(os, name)))  # type: ignore[operator]
        edits(seed)
        tell(watched.passed)

    return run


def repaired() -> dict[str, Any]:
    from django.core.management import call_command

    out = StringIO()
    call_command("vault", "index", "acme/ada", "--repair", "--json", stdout=out, stderr=StringIO())
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def wrong_after(vault: Path) -> list[str]:
    """What is not as it should be once a vault was mended; empty when all is well."""
    from memory.time_machine import replay

    files = [path for path in vault.rglob("*.md") if path.name != "index.md"]  # which lines are added to
    wrong = [f"torn: {path.name}" for path in files if not is_whole(path)]
    told = repaired()
    wrong += [f"left to decide: {each['kind']} of memory {each['id']}" for each in told["differences"]]
    wrong += ["a temporary file is left" for path in vault.rglob("*") if path.name.startswith(".palimpsest-")]
    wrong += [f"torn still: {path.name}" for path in vault.rglob("*.md") if not is_whole(path)]
    wrong += [problem.problem for problem in replay.problems(agent())]
    return wrong + not_said(vault)


def is_whole(path: Path) -> bool:
    """A file of ours ends as its template does; an index with a line."""
    from memory.vault import rendering

    data = path.read_bytes()
    if path.name == "index.md":
        return data.startswith(b"# Memory Index") and data.endswith(b"\n")
    said = rendering.read_file(data)
    return said is not None and data.endswith((b"```\n", b"\n")) and (said.sealed != b"")


def not_said(vault: Path) -> list[str]:
    """Memories whose file does not say what they say, or that have another number of files than one."""
    from memory.models import Memory
    from memory.silo.silo import Silo
    from memory.vault import rendering

    silo, wrong = Silo.for_agent(agent()), []
    files: dict[int, list[Path]] = {}
    for path in vault.rglob("*.md"):
        said = rendering.read_file(path.read_bytes())
        if said is not None:
            files.setdefault(said.number, []).append(path)
    listed = "".join(path.read_text() for path in vault.rglob("index.md"))
    for memory in Memory.objects.exclude(source="system"):
        found = files.pop(memory.number, [])
        is_there = [".discarded" not in path.parts for path in found]
        if memory.discarded_at is not None:
            wrong += [f"memory {memory.number} is discarded, its file is not"] * any(is_there)
            continue
        if is_there != [True]:
            wrong.append(f"memory {memory.number} has {len(found)} files")
            continue
        said, opened = rendering.read_file(found[0].read_bytes()), silo.open(memory)
        words = silo.open_sealed(memory.number, said.sealed).content if said and said.sealed else found[0].read_text()
        wrong += [f"memory {memory.number} is not what its file says"] * (opened.content.strip() not in words)
        wrong += [f"memory {memory.number} is not listed"] * (found[0].name not in listed)
    return wrong + [f"a file of a memory {number} that is not" for number in files]


def prepare(folder: Path) -> Path:
    from django.conf import settings

    from audit.trail import Actor
    from memory.agents import lifecycle

    settings.VAULT_ROOTS = [str(folder / "vaults")]
    vault = folder / "vaults" / "ada"
    lifecycle.create("acme", "ada", model="builtin/dedupe", actor=Actor.operator("killing"), vault_path=str(vault))
    edits(0)
    return vault


def close() -> None:
    """Before a fork: a connection belongs to one process."""
    from django.db import connections

    connections.close_all()


def begin_anew(folder: Path, vault: Path, *, save: bool = False) -> None:
    """Both as they were prepared, or save them as that."""
    saved = folder / "saved-vault"
    reset_to(folder, save=save)
    old, new = (vault, saved) if save else (saved, vault)
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, new)


def main(folder: Path, kills: int, seed: int) -> None:
    started = time.monotonic()
    import django

    django.setup()
    vault = prepare(folder)
    begin_anew(folder, vault, save=True)
    close()
    heard = folder / "points.json"
    assert in_child(deadly(seed, None, lambda passed: heard.write_text(json.dumps(passed)) and None)) == 0
    points: list[str] = json.loads(heard.read_text())
    by_kind: Counter[str] = Counter()
    wrong: list[str] = []
    reached = 0
    for nth, point in enumerate(choose(points, kills, seed), 1):
        if nth % TOGETHER == 1:
            begin_anew(folder, vault)
        close()
        status = in_child(deadly(seed + nth, point, lambda _: None))
        reached += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        by_kind[points[point - 1]] += 1
        wrong += [f"point {point}, {points[point - 1]}: {what}" for what in wrong_after(vault)]
    told = {"kills": kills, "reached": reached, "points": len(points), "by_kind": dict(by_kind), "wrong": wrong}
    print(json.dumps(told | {"seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
