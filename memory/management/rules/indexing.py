"""`memory_rules index`: compare the files of a vault with the silo, and repair what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from config.errors import FAILED
from config.wording import several
from memory.errors import Invalid
from memory.management.removal import KEY
from memory.management.rules import Deed, asking
from memory.management.rules.keeping import names_of_files
from memory.models import Agent
from memory.vault import comparing, repair
from memory.vault.comparing import COPY, Compared, Difference

_REPAIR = "--repair writes it again"
_IN_WORDS = {
    comparing.BEHIND: f"does not say what the memory says; {_REPAIR}",
    comparing.MISSING: f"is missing; {_REPAIR}",
    comparing.EDITED: "was changed by hand; --repair keeps it in .discarded/, and writes the memory's file again",
    comparing.MISPLACED: "is not in the folder that the settings name; --repair moves it",
    comparing.OLDER: f"was written under another version of the rules; {_REPAIR}",
    COPY: "is a copy that the vault does not need; it stays until somebody removes it",
    comparing.INDEX: f"is missing, or does not list what is there; {_REPAIR}",
    comparing.UNREADABLE: "cannot be read",
}


def _arguments(parser: CommandParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--check",
        action="store_true",
        help="list differences and change nothing; exit code 1 if there is something to repair",
    )
    which.add_argument(
        "--repair",
        action="store_true",
        help="write again what differs, and the index pages; a file that somebody changed is kept in .discarded/ "
        "(default)",
    )
    parser.add_argument(
        "--json", action="store_true", help=f"one line of JSON; names of files are shown only if {KEY} is set"
    )


def _index(task: Task, agent: Agent, **options: Any) -> int | None:
    if not agent.vault_path:
        raise Invalid("agent", f"{agent.label} has no vault: run 'memory_rules init {agent.label} --vault'")
    return (_check if options["check"] else _repair)(task, agent, json=options["json"])


def _check(task: Task, agent: Agent, *, json: bool) -> int | None:
    def compare(row: Agent) -> Compared:
        with progress("Comparing", unit="files") as advance:
            return comparing.whole(row, advance)

    found = asking.done(task, agent, compare)
    if found is None:
        return None
    if json:
        task.result(_as_json(agent, found.differences, found.unknown))
    else:
        _print(task, agent, found.differences, found.unknown)
    return FAILED if any(each.kind != COPY for each in found.differences) else None


def _repair(task: Task, agent: Agent, *, json: bool) -> int | None:
    def act(row: Agent) -> repair.Repaired:
        with progress("Comparing", unit="files") as advance:
            return repair.repair(row, progress=advance)

    done = asking.done(task, agent, act)
    if done is None:
        return None
    name = names_of_files(agent)
    if json:
        kept = [{"from": name(path), "to": name(to)} for path, to in done.aside]
        figures = {"mended": done.repaired, "indexed": done.indexed}
        task.result({**figures, "kept": kept} | _as_json(agent, done.left, done.unknown))
    else:
        for path, to in done.aside:
            task.say(f"{name(path)} was changed by hand, or is not the vault's: it is kept as {name(to)}.")
        repaired, indexed = several(done.repaired, "difference"), several(done.indexed, "file")
        task.tell(f"{repaired} repaired, {indexed} listed in the index pages.")
        _print(task, agent, done.left, done.unknown)
    return None if done.is_done else FAILED


def _print(task: Task, agent: Agent, found: Sequence[Difference], unknown: int) -> None:
    name = names_of_files(agent)
    for each in found:
        whose = f"memory {each.number}" if each.number else "no memory"
        task.tell(f"{whose}  {name(each.path) or '(no file)'}  {_IN_WORDS[each.kind]}")
    if not found:
        task.tell("No differences.")
    if unknown:
        task.say(f"{several(unknown, 'other file')}, left alone.")


def _as_json(agent: Agent, found: Sequence[Difference], unknown: int) -> dict[str, Any]:
    name = names_of_files(agent)
    shown = [{"id": each.number or None, "kind": each.kind, "path": name(each.path)} for each in found]
    return {"differences": shown, "unknown": unknown}


DEEDS = (Deed("index", "write the index pages, and repair what differs from the silo", _arguments, _index),)
