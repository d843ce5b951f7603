"""What other systems remembered is in the silo once it moved in, and nowhere else of ours."""

from __future__ import annotations

import json
from pathlib import Path

from audit.models import AuditEntry
from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from memory.transfer import migration
from tests.moving.pieces import move, piece, steps
from tests.privacy.watch import Watch
from tests.steps import ME, fresh


def test_pieces_are_left_nowhere_else(watch: Watch, ada: Agent) -> None:
    said = watch.text("ferries wait")
    pieces = [piece(watch.marker, said, tags=(f"glob:{watch.marker}",)), piece(f"{watch.marker}#2", watch.text("more"))]
    move(ada, *pieces)
    watch.attempt(lambda: migration.migrate(fresh(ada), steps(ada, piece("a", f"{watch.marker}\0")), ME))
    migration.skip(fresh(ada), steps(ada, piece("b", watch.text("beside"))))
    assert watch.leaks() == []
    assert watch.marker not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_neither_are_files_that_are_looked_at(watch: Watch, ada: Agent, tmp_path: Path) -> None:
    for path, text in {
        "CLAUDE.md": watch.text("ferries wait"),
        "AGENTS.md": f"{watch.marker}\0",
        ".cursor/rules/a.mdc": f"---\nglobs: {watch.marker}\n---\n{watch.text('quays')}",
        "mem0.json": json.dumps({"results": [{"id": watch.marker, "memory": watch.text("mem0")}]})[:-1],
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    where = ("--project-dir", str(tmp_path))
    for deed in (("detect",), ("migrate", "--dry-run"), ("migrate", "--how", "all", "--yes"), ("migrate",)):
        watch.run(*COMMANDS[deed[0]].split(), "acme/ada", *deed[1:], *where)
    watch.run("project", "init", "acme/ada", *where)
    assert watch.leaks() == []
