"""`memory_rules retrieve`: what of an agent's memory bears on a question."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.wording import several
from memory.access.authentication import is_key_of
from memory.errors import KeyRejected
from memory.management.rules import Deed, asking, surroundings
from memory.models import Agent
from memory.policy import switches
from memory.recording import retrieval
from memory.transfer.exporting import record


def _arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "query",
        metavar="QUERY",
        help='words; "quoted phrases" in order; tag:NAME; -word excludes (behind -- where it comes first)',
    )
    parser.add_argument(
        "--project", metavar="ID", help="seen from there; default: as MEMORY_PROJECT, the git remote, the folder tell"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="memories; default, and at most: search.max_results")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="what the memories weigh at most")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="NAME", help="which each of them has; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def _retrieve(
    task: Task,
    agent: Agent,
    *,
    query: str,
    project: str | None,
    limit: int | None,
    max_tokens: int | None,
    tag: Sequence[str],
    json: bool,
    **_: Any,
) -> None:
    if not is_key_of(agent, os.environ.get("PALIMPSEST_AGENT_KEY", "")):
        raise KeyRejected("Memories are shown to their agent: set PALIMPSEST_AGENT_KEY to its valid key.")
    if project is None:
        project = surroundings.project_of(Path.cwd(), switches.rules_of(agent))
    retrieve = partial(retrieval.retrieve, query=query, project=project, limit=limit, tags=tag, max_tokens=max_tokens)
    found = asking.done(task, agent, retrieve)
    if found is None:
        return
    if json:
        task.result(shown(found) | {"project": project})
        return
    for line in found.block.splitlines():
        task.tell(line)
    left_out = f"; {found.left_out:,} more had no room" if found.left_out else ""
    many = several(len(found.reads), "memory", "memories")
    task.say(f"{many}, {several(found.tokens, 'token')}, seen from {project or '-'}{left_out}.")


def shown(found: retrieval.Retrieved) -> dict[str, Any]:
    results = [
        record(read.memory, read.opened, with_discarded=True)
        | {"score": read.score, "recalled": found.times.get(read.memory.number, 0)}
        for read in found.reads
    ]
    return {"results": results, "block": found.block, "tokens": found.tokens, "left_out": found.left_out}


DEEDS = (
    Deed("retrieve", "print what bears on a question, best first; needs PALIMPSEST_AGENT_KEY", _arguments, _retrieve),
)
