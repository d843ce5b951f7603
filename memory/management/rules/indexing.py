"""`memory_rules index`: a vault's files compared with the silo, mended, and decided about where somebody wrote one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from config.errors import FAILED
from config.wording import several
from memory.errors import Invalid, Stale
from memory.management.removal import KEY
from memory.management.rules import Deed, asking
from memory.management.rules.keeping import agents_side, names_of_files, told_file
from memory.models import Agent
from memory.policy.categories import PRIVATE
from memory.vault import comparing, repair
from memory.vault.comparing import Compared, Difference

_IN_WORDS = {
    comparing.BEHIND: "not written as the memory is now",
    comparing.MISSING: "gone",
    comparing.EDITED: "written to by somebody: --take-in {number} or --leave {number}",
    comparing.MISPLACED: "in another folder than the settings have it",
    comparing.OLDER: "of another version of the rules: --migrate writes it anew",
    comparing.COPY: "somebody's copy, or unknown; left alone: remove it, or move it out of the vault",
    comparing.INDEX: "gone, or does not list what there is: --repair writes it anew",
    comparing.UNREADABLE: "cannot be read",
}
_SEALED = "written to by somebody, and sealed, so that none of it is taken in: --leave {number} keeps what was written"

_CHANGED = (
    "Not taken in, for the memory says something else, too, since its file was written. --leave {number} puts the file "
    "aside, and writes it anew; what of it is still to be said can be written into that. Changed"
)


def _arguments(parser: CommandParser) -> None:
    deed = parser.add_mutually_exclusive_group()
    deed.add_argument(
        "--check", action="store_true", help="list what differs, and change nothing; exit code 1 where something does"
    )
    deed.add_argument("--repair", action="store_true", help="mend what differs, but for what somebody wrote (default)")
    deed.add_argument("--migrate", action="store_true", help="write files of another version of the rules anew")
    deed.add_argument(
        "--take-in", type=int, metavar="ID", help=f"have its memory say what was written to a file; {KEY}"
    )
    deed.add_argument("--leave", type=int, metavar="ID", help=f"put a file aside that was written to; {KEY}")
    parser.add_argument(
        "--json", action="store_true", help=f"one line of JSON. Names of files are told where {KEY} is set"
    )


def _index(task: Task, agent: Agent, **options: Any) -> int | None:
    if not agent.vault_path:
        raise Invalid("agent", f"{agent.label} has no vault; 'memory_rules init {agent.label} --vault' begins one")
    if options["check"]:
        return _check(task, agent, json=options["json"])
    if options["take_in"] is not None:
        told = _take_in(task, agent, options["take_in"])
    elif options["leave"] is not None:
        told = _leave(task, agent, options["leave"])
    elif options["migrate"]:
        rewritten = asking.done(task, agent, repair.migrate)
        told = None if rewritten is None else {"rewritten": rewritten}
    else:
        return _repair(task, agent, json=options["json"])
    if told is not None:
        _tell(task, told, json=options["json"])
    return None


def _tell(task: Task, told: dict[str, Any], *, json: bool) -> None:
    if json:
        task.result(told)
        return
    for name, value in told.items():
        task.tell(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")


# --- compared, and mended


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
        _tell_what_differs(task, agent, found.differences, found.unknown)
    return FAILED if found.differences else None


def _repair(task: Task, agent: Agent, *, json: bool) -> int | None:
    def mend(row: Agent) -> repair.Repaired:
        with progress("Comparing", unit="files") as advance:
            return repair.repair(row, progress=advance)

    done = asking.done(task, agent, mend)
    if done is None:
        return None
    name = names_of_files(agent)
    for path, kept in done.aside:
        task.say(f"{name(path)} was not ours: it is kept as {name(kept)}.")
    if json:
        figures = {"mended": done.mended, "indexed": done.indexed}
        task.result(figures | _as_json(agent, done.left, done.unknown))
    else:
        mended, indexed = several(done.mended, "difference"), several(done.indexed, "file")
        task.tell(f"{mended} mended, {indexed} listed in the indexes.")
        _tell_what_differs(task, agent, done.left, done.unknown)
    return None if done.is_done else FAILED


def _tell_what_differs(task: Task, agent: Agent, found: Sequence[Difference], unknown: int) -> None:
    name = names_of_files(agent)
    for each in found:
        whose = f"memory {each.number}" if each.number else "no memory"
        is_sealed = each.kind == comparing.EDITED and PurePosixPath(each.path).parts[0] == PRIVATE
        why = (_SEALED if is_sealed else _IN_WORDS[each.kind]).format(number=each.number)
        task.tell(f"{whose}  {name(each.path) or '(no file)'}  {why}")
    if not found:
        task.tell("Nothing differs.")
    if unknown:
        task.say(f"{several(unknown, 'file')} of others, left alone.")


def _as_json(agent: Agent, found: Sequence[Difference], unknown: int) -> dict[str, Any]:
    name = names_of_files(agent)
    told = [{"id": each.number or None, "kind": each.kind, "path": name(each.path)} for each in found]
    return {"differences": told, "unknown": unknown}


# --- decided


def _take_in(task: Task, agent: Agent, number: int) -> dict[str, Any] | None:
    side = agents_side(agent)
    try:
        edited = asking.done(task, agent, partial(repair.take_in, number=number, actor=side))
    except Stale:
        raise Stale([number], _CHANGED.format(number=number)) from None
    return None if edited is None else {"entry": edited.seq, "file": told_file(task, agent, number)}


def _leave(task: Task, agent: Agent, number: int) -> dict[str, Any] | None:
    side = agents_side(agent)
    kept = asking.done(task, agent, partial(repair.leave, number=number, actor=side))
    return None if kept is None else {"kept": kept, "file": told_file(task, agent, number)}


DEEDS = (Deed("index", "write the indexes anew, and mend what differs from the silo", _arguments, _index),)
