"""Kill edits of an agent with a vault with SIGKILL, and check what is left: `main` for `test_vault_kills.py`.

Each child makes some edits and kills itself before or after its n-th operation on a file, or commit. Then
`vault index --repair` runs, and the vault is compared with the silo. The next child continues from what the last one
left; after PER_RESET of them the database and the vault are restored.
"""

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections

from audit.trail import Actor
from memory.agents import lifecycle
from memory.errors import MemoryFault
from memory.models import Memory
from memory.policy.validation import Draft
from memory.time_machine import replay
from memory.vault import rendering
from memory.writing import operations
from tests.fault.agreement import differences
from tests.fault.killing import Points, choose, get_agent, in_child, is_killed, rehearse, reset_to

CALLS = ("open", "fsync", "link", "replace", "rename", "unlink", "mkdir")
CATEGORIES = ("technical", "contextual", "personal", "topic", "credentials")
PER_RESET = 8
LENGTH = 6_000  # characters, so that a file has several pages


def edit(seed: int) -> None:
    """One edit of each kind, of random memories. An edit may be refused."""
    dice, me = random.Random(seed), Actor.person("pat@acme.test")
    text = lambda: f"{dice.choice(('heather', 'moss', 'fern'))} {dice.random()} " + "x" * dice.randint(1, LENGTH)  # noqa: E731
    drafts = [Draft(text(), category=name, project="site", tags=(f"service:s{dice.random()}",)) for name in CATEGORIES]
    operations.remember(get_agent(), drafts, me)
    numbers = Memory.objects.filter(source="agent").order_by("number").values_list("number", flat=True)
    active = list(numbers.active())
    for change in (
        lambda: operations.revise(get_agent(), dice.choice(active), me, content=text()),
        lambda: operations.discard(get_agent(), dice.sample(active, 2), me),
        lambda: operations.revise(get_agent(), dice.choice(active[-5:]), me, content=text()),
        lambda: operations.restore(get_agent(), [dice.choice(list(numbers.exclude(discarded_at=None)))], me),
        lambda: operations.remember(get_agent(), drafts[:2], me),
    ):
        try:
            change()
        except MemoryFault:
            continue


def edit_and_count(seed: int) -> Callable[[Points], None]:
    def run(points: Points) -> None:
        write = os.write

        def half(number: int, data: bytes) -> int:
            """Write half of the data, so that others read the file in this state."""
            points.reach("before write")
            written = write(number, data[: max(1, len(data) // 2)])
            points.reach("half a write")
            return written

        connection.ensure_connection()
        connection._commit = points.around(connection._commit, "before commit", "after commit")
        for name in CALLS:
            setattr(os, name, points.around(getattr(os, name), f"before {name}", f"after {name}"))
        os.write = half
        edit(seed)

    return run


def repair() -> list[dict[str, Any]]:
    """Repair the vault; the differences that it leaves to a person."""
    out = StringIO()
    call_command("vault", "index", "acme/ada", "--repair", "--json", stdout=out, stderr=StringIO())
    left: list[dict[str, Any]] = json.loads(out.getvalue())["differences"]
    return left


def problems_after(vault: Path) -> list[str]:
    """The problems of a vault once it is repaired, and the torn files before that."""
    files = [path for path in vault.rglob("*.md") if path.name != "index.md"]  # an index grows by lines
    found = [f"torn: {path.name}" for path in files if not is_whole(path)]
    found += [f"left to a person: {each['kind']} of memory {each['id']}" for each in repair()]
    found += ["a temporary file is left" for path in vault.rglob("*") if path.name.startswith(".palimpsest-")]
    found += [f"still torn: {path.name}" for path in vault.rglob("*.md") if not is_whole(path)]
    found += [problem.problem for problem in replay.problems(get_agent())]
    return found + miscounted(vault) + differences(get_agent())


def is_whole(path: Path) -> bool:
    """Whether a file ends as its template does; an index has a line."""
    data = path.read_bytes()
    if path.name == "index.md":
        return data.startswith(b"# Memory Index") and data.endswith(b"\n")
    file = rendering.read_file(data)
    return file is not None and data.endswith((b"```\n", b"\n")) and (file.sealed != b"")


def miscounted(vault: Path) -> list[str]:
    """Memories without exactly one file in use, or with a file although they are discarded or do not exist."""
    files = [
        rendering.read_file(path.read_bytes())
        for path in vault.rglob("*.md")
        if not {".discarded", ".beneath"} & {*path.parts}
    ]
    counts = Counter(file.number for file in files if file is not None)
    active = Memory.objects.active().exclude(source="system").values_list("number", flat=True)
    numbers = set(counts) | set(active)
    return [f"memory {n} has {counts[n]} files" for n in numbers if counts[n] != (n in active)]


def reset_both(folder: Path, vault: Path, *, save: bool = False) -> None:
    """Restore the saved database and vault, or save them as they are."""
    saved = folder / "saved-vault"
    reset_to(folder, save=save)
    old, new = (vault, saved) if save else (saved, vault)
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, new)


def main(where: str, kills: str, seed: str) -> None:
    started, folder = time.monotonic(), Path(where)
    settings.VAULT_ROOTS = [str(folder / "vaults")]
    vault = folder / "vaults" / "ada"
    lifecycle.create("acme", "ada", model="builtin/dedupe", actor=Actor.operator("killing"), vault_path=str(vault))
    edit(0)
    reset_both(folder, vault, save=True)
    connections.close_all()  # a connection belongs to one process
    points = rehearse(folder, edit_and_count(int(seed)))
    by_kind: Counter[str] = Counter()
    problems: list[str] = []
    reached = 0
    for nth, point in enumerate(choose(points, int(kills), int(seed)), 1):
        if nth % PER_RESET == 1:
            reset_both(folder, vault)
        connections.close_all()
        work = edit_and_count(int(seed) + nth)
        reached += is_killed(in_child(lambda point=point, work=work: work(Points(point))))
        by_kind[points[point - 1]] += 1
        problems += [f"point {point}, {points[point - 1]}: {each}" for each in problems_after(vault)]
    figures = {"kills": sum(by_kind.values()), "reached": reached, "points": len(points), "by_kind": dict(by_kind)}
    print(json.dumps(figures | {"problems": problems, "seconds": round(time.monotonic() - started, 1)}))
