"""`gc` with a memory file: the file, its folder, its trail, and output that cannot be written (seed 001, section 5)."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from audit.models import AuditEntry, Operation
from memory.agents import rule_changes
from memory.models import Agent
from memory.run_log import runs
from memory.run_log.files import Folder
from memory.writing import operations
from refinement import gc
from tests.commands.calling import failed, run
from tests.commands.gc.logs import ME, REPORT, Make, last_line, log_of
from tests.model_server import ModelServer, Say, Turn
from tests.steps import PERSON, fresh, problems
from tests.unit.test_memory_file import entry, of

NO_SPACE = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_folder_that_is_not_writable_is_an_error(make: Make, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    agent = make(last_n=3)
    request.getfixturevalue("as_nobody")
    tmp_path.chmod(0o555)
    ran = run("gc", "ada")
    tmp_path.chmod(0o755)
    folder = re.escape(str(tmp_path))
    error = f"failed to create temp file: open {folder}/.palimpsest-trim-[0-9a-f]{{16}}: permission denied\n"
    assert re.fullmatch(f"Error: {error}{error}", ran.err)
    assert (ran.code, REPORT in ran.out, log_of(agent)) == (1, True, of(10))
    assert [each.name for each in tmp_path.iterdir()] == [Path(agent.memory_path).name]


def test_a_read_only_file_system_is_an_error_only_if_something_is_removed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, real_open = make(entries=3, last_n=10), Folder.open

    def open_to_read(folder: Folder, name: str, flags: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real_open(folder, name, flags)

    monkeypatch.setattr(Folder, "open", open_to_read)
    for name in ("remove", "replace", "link", "move", "sync"):
        monkeypatch.setattr(Folder, name, mock.Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    ran = run("gc", "ada")
    assert (ran.code, ran.err, last_line(ran)) == (0, "", "No trimming needed: 3 entries within limit (10).")
    Agent.objects.filter(pk=agent.pk).update(last_n=2)
    ran = run("gc", "ada")
    assert ran.code == 1
    assert "failed to create temp file: open " in ran.err
    assert ": read-only file system" in ran.err
    assert log_of(agent) == of(3)


def test_the_temporary_file_is_in_the_folder_of_the_symlinks_target(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make(last_n=3)
    target = tmp_path / "elsewhere" / "real.md"
    target.parent.mkdir()
    Path(agent.memory_path).rename(target)
    Path(agent.memory_path).symlink_to(target)
    monkeypatch.delattr(os, "O_TMPFILE")  # so that the temporary file has a name
    folders: list[Path] = []
    real_open = os.open

    def record(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            folders.append(Path(f"/proc/self/fd/{named['dir_fd']}").readlink())
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", record)
    assert run("gc", "ada").code == 0
    assert folders == [target.parent]


def test_an_agent_can_have_its_own_path(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "notes of ada.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(of(10))
    agent = make(entries=None, memory_path="deep/down/notes of ada.md", last_n=3)
    assert agent.memory_path == str(path)
    assert last_line(run("gc", "ada")) == "Trimmed: 7 entries removed, 3 entries kept."
    runs.log_run(agent, "another", "done", ME)
    assert path.read_bytes().startswith(entry(8) + entry(9) + entry(10) + b"## 2")


def test_a_trim_is_in_the_trail_with_counts_and_sizes(make: Make) -> None:
    agent = make(last_n=3)
    run("gc", "ada")
    file = AuditEntry.objects.get(agent_id=agent.pk, operation=Operation.TRIMMED).detail["file"]
    assert (file["removed"], file["kept"], file["before"]["entries"], file["after"]["entries"]) == (7, 3, 10, 3)
    assert file["after"]["bytes"] == len(log_of(agent))
    assert problems(agent) == []


def test_a_file_outside_the_vault_roots_is_not_read(make: Make, tmp_path: Path, settings: Any) -> None:
    agent = make()
    settings.VAULT_ROOTS = [str(tmp_path / "vault")]
    failed(run("gc", "ada"), 2, "VAULT_ROOTS")
    assert log_of(agent) == of(10)


def test_nothing_is_trimmed_if_the_analysis_cannot_be_written_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make(last_n=3)
    monkeypatch.setattr("refinement.management.commands.gc.Command.flush", NO_SPACE)
    ran = run("gc", "ada")
    assert (ran.code, "nothing was trimmed" in ran.err, log_of(agent)) == (1, True, of(10))


def test_all_ends_when_output_cannot_be_written(
    make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [make(slug, last_n=3) for slug in ("a", "b")]
    monkeypatch.setattr("django.core.management.base.OutputWrapper.flush", NO_SPACE)
    ran = run("gc", "--all")
    assert ran.code == 1
    assert "gc ended: what is found cannot be written out; 1 of 2 agents done" in ran.err
    assert [log_of(agent) for agent in agents] == [of(10)] * 2
    assert len(server.requests) == 1


@pytest.mark.parametrize("has_file", [True, False])
def test_memory_that_is_switched_off_before_the_trim_is_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    agent, trim = make(last_n=3, **({} if has_file else {"memory_path": ""})), gc._trim
    for number in range(0 if has_file else 5):
        runs.log_run(agent, f"task {number}", "done", ME)

    def switch_off_and_trim(*arguments: Any) -> None:
        rule_changes.change(fresh(agent), PERSON, enabled=False)
        trim(*arguments)

    monkeypatch.setattr(gc, "_trim", switch_off_and_trim)
    ran = run("gc", "ada")
    assert (ran.code, "Trimmed" in ran.out) == (1, False)
    assert ran.err.startswith("Error: Memory is off for this agent.")
    assert log_of(agent) == of(10) if has_file else operations.runs(fresh(agent)).count() == 5


def test_a_file_that_is_rewritten_during_the_call_is_an_error(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)

    def rewrite(_: Turn) -> Say:
        Path(agent.memory_path).write_bytes(of(10).replace(b"task1\n", b"TASK1\n"))
        return Say(REPORT)

    server.script = rewrite
    ran = run("gc", "ada")
    assert (ran.code, "rewritten meanwhile" in ran.err) == (1, True)
    assert not AuditEntry.objects.filter(operation=Operation.TRIMMED).exists()
