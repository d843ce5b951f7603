"""Helpers for the tests of vaults: the files of a folder, its differences, and requests to remove memories."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

from memory.consent import erasure, redaction, requests
from memory.errors import FileFault, MemoryFault
from memory.models import Agent
from memory.silo.silo import Silo
from memory.vault import comparing, rendering
from memory.vault.disk import Disk
from tests.commands.calling import run
from tests.steps import ME, PERSON, fresh, problems, remember

FERRY = "The ferry leaves at 14:30."


def tree(vault: Path) -> list[str]:
    """Every file except the lock."""
    found = (path for path in vault.rglob("*") if path.is_file() and path.name != ".palimpsest")
    return sorted(str(path.relative_to(vault)) for path in found)


def memory_files(vault: Path) -> list[str]:
    """Every file except the lock and the index pages."""
    return [path for path in tree(vault) if Path(path).name != "index.md"]


def only_file(vault: Path) -> Path:
    [path] = memory_files(vault)
    return vault / path


def all_text(vault: Path) -> str:
    """The names of all files and folders, and the text of all files."""
    names = [str(path.relative_to(vault)) for path in vault.rglob("*")]
    return "\n".join([*names, *((vault / path).read_text() for path in tree(vault))])


def differences(agent: Agent) -> list[tuple[str, int]]:
    return [(each.kind, each.number) for each in comparing.whole(fresh(agent)).differences]


def in_clear(agent: Agent, data: bytes) -> bytes:
    """The bytes of a file, followed by the text of its sealed block."""
    info = rendering.read_file(data)
    if info is None or not info.sealed:
        return data
    try:
        return data + Silo.for_agent(agent).open_sealed(info.number, info.sealed).content.encode()
    except MemoryFault:
        return data


def ferry(agent: Agent, text: str = FERRY, **values: Any) -> int:
    [number] = remember(agent, text, **{"category": "technical"} | values)
    return number


def fault(agent: Agent) -> str:
    """The fault that the command `status` reports."""
    return str(run("rules", "status", agent.label, "--json").json["vault"]["fault"] or "")


def assert_repaired(agent: Agent) -> None:
    """One repair fixes everything."""
    assert comparing.repair(fresh(agent)).left == ()
    assert (differences(agent), fault(agent), problems(agent)) == ([], "", [])


def edit(path: Path, old: str, new: str) -> None:
    """Change a file by hand."""
    path.write_text(path.read_text().replace(old, new))


def block(vault: Path) -> None:
    """Put a file in the place of the vault's folder."""
    vault.rename(vault.with_name("moved-vault"))
    vault.write_text("not a folder")


def unblock(vault: Path) -> None:
    vault.unlink()
    vault.with_name("moved-vault").rename(vault)


def redact(agent: Agent, *numbers: int) -> None:
    request = requests.ask_redaction(fresh(agent), numbers, PERSON, reason="request 17")
    redaction.redact(fresh(agent), request.number, ME)


def erase(agent: Agent) -> None:
    erasure.erase(agent, requests.ask_erasure(agent, PERSON, reason="request 18").number, ME)


def refuse(method: str, does_match: Callable[[PurePosixPath], bool]) -> Any:
    """Let a method of the disk fail for the paths that match."""
    real = getattr(Disk, method)

    def call(self: Disk, path: PurePosixPath, *args: Any, **options: Any) -> Any:
        if does_match(path):
            raise FileFault("denied", "permission denied")
        return real(self, path, *args, **options)

    return mock.patch.object(Disk, method, call)
