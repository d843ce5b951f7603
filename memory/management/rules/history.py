"""`memory_rules analyze_git`: what a repository's history tells of its project, kept as a memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from config.wording import several
from memory.agents import rule_changes
from memory.errors import Invalid
from memory.git_history import keeping, telling
from memory.git_history.analysis import SETTINGS, Analysis, Parts, analysed, limits_of
from memory.git_history.facts import Limits
from memory.git_history.repository import Repository
from memory.management.rules import Deed, asking
from memory.management.rules.keeping import told_file
from memory.management.rules.surroundings import project_of
from memory.models import Agent, HistoryAnalysis
from memory.policy import settings_document, switches
from memory.policy.names import checked_project

SWITCH = f"{SETTINGS}.enabled"


def _arguments(parser: CommandParser) -> None:
    parser.add_argument("--project-dir", default=".", metavar="FOLDER", help="of the repository; default: this one")
    parser.add_argument("--project", metavar="ID", help="that it is kept for; default: the folder's")
    parser.add_argument("--days", type=int, metavar="N", help="how far back from now")
    parser.add_argument("--commits", type=int, metavar="N", help="at most so many, the newest")
    parser.add_argument("--seconds", type=float, metavar="N", help="that it may take; what was covered by then is said")
    parser.add_argument("--authors", action="store_const", const=True, help="name people, and what each contributed")
    parser.add_argument("--branches", action="store_const", const=True, help="follow how branches come and go")
    parser.add_argument("--again", action="store_true", help="though nothing was committed since the last analysis")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what its memory would say, and keep nothing; of what is known already with --again",
    )
    parser.add_argument("--yes", action="store_true", help="switch the analysis on without asking")


def _analyze(task: Task, agent: Agent, **options: Any) -> int | None:
    folder = Path(options["project_dir"])
    if not folder.is_dir():
        raise Invalid("project-dir", "is no folder")

    def act(row: Agent) -> None:
        switches.require(row, keeping.CATEGORY)
        if _is_on(task, row, yes=options["yes"]):
            _analyzed(task, row, folder, options)

    asking.done(task, agent, act)
    return None


def _is_on(task: Task, agent: Agent, *, yes: bool) -> bool:
    if settings_document.value(switches.rules_of(agent), SWITCH):
        return True
    question = "The analysis of git history is currently switched off. Switch on? (y/n)"
    if not asking.agreed(task, [SWITCH], yes=yes, question=question):
        task.say("Nothing was done.")
        return False
    rule_changes.set_one(agent, asking.OPERATOR, SWITCH, "true")
    agent.refresh_from_db(fields=["rules"])
    return True


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of looking at a history: an analysis; or one of the same that was made before; or why there is none."""

    told: str
    analysis: Analysis | None = None
    done: HistoryAnalysis | None = None
    hint: str = ""


def look(agent: Agent, folder: Path, project: str, limits: Limits, parts: Parts, *, again: bool = False) -> Looked:
    """Analyse what is not known. Raises Invalid."""
    with Repository(folder) as repository:
        done, head = keeping.last(agent, project), repository.head
        if done is not None and head is not None and not again and keeping.is_known(agent, done, head, limits, parts):
            return Looked(f"nothing was committed since it was analysed, {done.at:%Y-%m-%d %H:%M} UTC", done=done)
        known = keeping.facts_of(agent, done)
        with progress("Analysing", unit="commits") as advance:
            found = analysed(repository, limits, parts, now=int(time()), known=known, progress=advance)
        return _nothing(repository, limits) if found is None else Looked(telling.covered(found), found)


def _nothing(repository: Repository, limits: Limits) -> Looked:
    if repository.commit(repository.head or "") is None:
        return Looked("nothing to analyse: the repository has no commits")
    told = f"nothing to analyse: the last commit is older than {several(limits.days, 'day')}"
    return Looked(told, hint="--days looks further back.")


def _analyzed(task: Task, agent: Agent, folder: Path, options: dict[str, Any]) -> None:
    rules = switches.rules_of(agent)
    limits = limits_of(rules, days=options["days"], commits=options["commits"], seconds=options["seconds"])
    parts = Parts.of(rules, authors=options["authors"], branches=options["branches"])
    project = checked_project(options["project"] or "") or project_of(folder, rules)  # before the work, not after it
    looked = look(agent, folder, project, limits, parts, again=options["again"])
    hint = _again(dry_run=options["dry_run"]) if looked.done else looked.hint
    task.say(f"{looked.told[:1].upper()}{looked.told[1:]}. {hint}".rstrip())
    if looked.analysis and (left_out := telling.unlooked(parts)):
        task.say(f"Not looked at, as the settings have it: {', '.join(left_out)}.")
    if looked.analysis and options["dry_run"]:
        task.stdout.write(telling.told(looked.analysis, project))
    elif looked.analysis:
        task.result(kept(task, agent, project, looked.analysis))
    elif looked.done:
        file = told_file(task, agent, looked.done.memory)
        task.result({"id": looked.done.memory, "project": project, "unchanged": True, "file": file})


def _again(*, dry_run: bool) -> str:
    if dry_run:
        return "What its memory would say is printed with --dry-run --again."
    return "--again analyses it all the same."


def kept(task: Task, agent: Agent, project: str, found: Analysis) -> dict[str, Any]:
    """Keep it as a memory; which, and where its file is."""
    done = keeping.keep(agent, project, found, asking.OPERATOR)
    return {
        "id": done.number,
        "project": project,
        "commits": len(found.facts),
        "head": found.head,
        "new": done.is_new,
        "file": told_file(task, agent, done.number),
    }


DEEDS = (Deed("analyze_git", "keep what a repository's history tells of its project", _arguments, _analyze),)
