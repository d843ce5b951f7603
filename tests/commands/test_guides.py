"""The command blocks of docs/how-to/move-memories.md and trim-a-log.md work, in order, in one shell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.commands.calling import ROOT, Installation
from tests.commands.gc.logs import REPORT
from tests.model_server import ModelServer, Say


def run_guide(name: str, service: Installation, folder: Path, **more: str) -> str:
    """Run the guide's commands in a folder of their own, and return what they print."""
    guide = (ROOT / "docs" / "how-to" / name).read_text("utf-8")
    commands = "set -eu\n" + "\n".join(re.findall(r"```sh\n(.*?)```", guide, re.DOTALL))
    commands = commands.replace(".venv/bin/python manage.py", f"{sys.executable} {ROOT}/manage.py")
    done = subprocess.run(
        ["/bin/sh", "-c", commands],
        cwd=folder,
        env=service.environment | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_memories_are_moved(service: Installation, tmp_path: Path) -> None:
    shown = run_guide("move-memories.md", service, tmp_path)
    assert "imported 2 memories" in shown
    assert "1 memory stored" in shown
    assert len((tmp_path / "backup.jsonl").read_text("utf-8").splitlines()) == 3, "the migration was rolled back"
    assert list((tmp_path / "backup").rglob("*.md"))


def test_a_log_is_trimmed(service: Installation, tmp_path: Path) -> None:
    with ModelServer(Say(REPORT)) as server:
        shown = run_guide("trim-a-log.md", service, tmp_path, OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="any")
    assert "Agent: acme/clerk\nEntries: 4\n--- Analysis ---\n## Patterns Found" in shown
    assert "Trimmed: 1 entries removed, 3 entries kept." in shown
