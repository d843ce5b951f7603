"""Prompts, recordings and the memories of other systems are in the silo and nowhere else."""

import json
from pathlib import Path

import pytest

from audit.models import AuditEntry
from memory.agents import lifecycle, prompts
from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from memory.transfer import migration
from tests.privacy.watch import Watch
from tests.rules.recordings import off, overhear, settings, talk
from tests.steps import ME, fresh
from tests.transfer.pieces import move, piece, steps


@pytest.mark.database
def test_prompts_leak_nothing(watch: Watch, ada: Agent) -> None:
    texts = {name: watch.text(name) for name in prompts.NAMES}
    lifecycle.change(ada, ME, **texts)
    lifecycle.issue_key(fresh(ada), ME)  # its entry contains the settings
    assert {name: prompts.opened(fresh(ada), name) for name in texts} == texts


def test_migrated_pieces_leak_nothing(watch: Watch, ada: Agent) -> None:
    text = watch.text("ferries wait")
    pieces = [piece(watch.marker, text, tags=(f"glob:{watch.marker}",)), piece(f"{watch.marker}#2", watch.text("more"))]
    move(ada, *pieces)
    watch.attempt(lambda: migration.migrate(fresh(ada), steps(ada, piece("a", f"{watch.marker}\0")), ME))
    migration.skip(fresh(ada), steps(ada, piece("b", watch.text("beside"))))
    assert watch.marker not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_detecting_and_migrating_files_leak_nothing(watch: Watch, ada: Agent, tmp_path: Path) -> None:
    for path, text in {
        "CLAUDE.md": watch.text("ferries wait"),
        "AGENTS.md": f"{watch.marker}\0",
        ".cursor/rules/a.mdc": f"---\nglobs: {watch.marker}\n---\n{watch.text('quays')}",
        "mem0.json": json.dumps({"results": [{"id": watch.marker, "memory": watch.text("mem0")}]})[:-1],
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    where = ("--project-dir", str(tmp_path))
    for name, *options in (("detect",), ("migrate", "--dry-run"), ("migrate", "--how", "all", "--yes"), ("migrate",)):
        watch.run(*COMMANDS[name].split(), "acme/ada", *options, *where)
    watch.run("project", "init", "acme/ada", *where)


def test_recordings_leak_nothing(watch: Watch, ada: Agent) -> None:
    settings(ada, auto_recording__enabled=True)
    mark = watch.marker
    overhear(ada, watch.text("always drinks tea"), watch.text("noted"), topic=mark, learnings=mark)
    overhear(ada, f"Always remember that my password is x{mark}9", f"x{mark}9", session="next")
    overhear(ada, "hi")
    watch.attempt(lambda: overhear(ada, f"{mark}\0"))
    off(ada, "user_interaction", auto_recording__enabled=True)
    overhear(ada, watch.text("always"))
    watch.attempt(lambda: talk(ada, watch.text("always")))
    watch.run("remember", "record", "acme/ada", "--prompt", watch.text("remember"), "--topic", mark)
    watch.run("remember", "session", "acme/ada", "list")
    watch.run("remember", "session", "acme/ada", "end", "next", "--goal", mark)
    watch.run("remember", "topic", "acme/ada", mark, "--insight", mark)
    assert mark not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))
