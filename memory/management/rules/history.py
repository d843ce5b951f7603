"""`memory_rules analyze_git`: store what a repository's history says about its project as a memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from memory.agents import rule_changes
from memory.errors import Invalid
from memory.git_history import report, storage
from memory.git_history.analysis import SETTINGS, Analysis, Limits, Parts, analyze, limits_of
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
    parser.add_argument("--project", metavar="ID", help="the project of the memory; default: the folder's")
    parser.add_argument("--days", type=int, metavar="N", help="how many days back from now")
    parser.add_argument("--commits", type=int, metavar="N", help="how many of the newest commits")
    parser.add_argument("--seconds", type=float, metavar="N", help="how long the analysis may take")
    parser.add_argument("--authors", action="store_const", const=True, help="name people and their shares")
    parser.add_argument("--branches", action="store_const", const=True, help="count merged and unmerged branches")
    parser.add_argument("--again", action="store_true", help="analyze although nothing was committed since")
    parser.add_argument("--dry-run", action="store_true", help="print the memory and store nothing")
    parser.add_argument("--yes", action="store_true", help="switch the analysis on without asking")


def _analyze(task: Task, agent: Agent, **options: Any) -> int | None:
    folder = Path(options["project_dir"])
    if not folder.is_dir():
        raise Invalid("project-dir", "is no folder")

    def act(row: Agent) -> None:
        switches.require(row, storage.CATEGORY)
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
    """The result of looking at a history: an analysis, or an earlier one that is still current (`done`), or neither.
    `summary` says which."""

    summary: str
    analysis: Analysis | None = None
    done: HistoryAnalysis | None = None


def look(agent: Agent, folder: Path, project: str, limits: Limits, parts: Parts, *, again: bool = False) -> Looked:
    """Analyze a history, unless an earlier analysis is current. Raises Invalid."""
    with Repository(folder) as repository:
        done, head, rules = storage.last(agent, project), repository.head, switches.rules_of(agent)
        if done is not None and head and not again and storage.is_current(agent, done, head, limits, parts, rules):
            return Looked(f"nothing was committed since the analysis of {done.at:%Y-%m-%d %H:%M} UTC", done=done)
        with progress("Analyzing", unit="commits") as advance:
            found = analyze(repository, limits, parts, now=int(time()), progress=advance)
    return (
        Looked(report.covered(found), found) if found else Looked("nothing to analyze: the repository has no commits")
    )


def _analyzed(task: Task, agent: Agent, folder: Path, options: dict[str, Any]) -> None:
    rules = switches.rules_of(agent)
    limits = limits_of(rules, days=options["days"], commits=options["commits"], seconds=options["seconds"])
    parts = Parts.of(rules, authors=options["authors"], branches=options["branches"])
    project = checked_project(options["project"] or "") or project_of(folder, rules)  # before the work, not after it
    looked = look(agent, folder, project, limits, parts, again=options["again"])
    flags = "--dry-run --again prints its memory" if options["dry_run"] else "--again analyzes it anyway"
    task.say(f"{looked.summary[:1].upper()}{looked.summary[1:]}.{f' {flags}.' if looked.done else ''}")
    if looked.analysis and (off := parts.off()):
        task.say(f"Not analyzed, because the settings switch it off: {', '.join(off)}.")
    if looked.analysis and options["dry_run"]:
        task.stdout.write(report.render(looked.analysis, project))
    elif looked.analysis:
        task.result(stored(task, agent, project, looked.analysis))
    elif looked.done:
        file = told_file(task, agent, looked.done.memory)
        task.result({"id": looked.done.memory, "project": project, "unchanged": True, "file": file})


def stored(task: Task, agent: Agent, project: str, found: Analysis) -> dict[str, Any]:
    """Store an analysis as a memory. Returns which memory, and where its file is."""
    done = storage.store(agent, project, found, asking.OPERATOR)
    return {
        "id": done.number,
        "project": project,
        "commits": len(found.facts),
        "head": found.head,
        "new": done.is_new,
        "file": told_file(task, agent, done.number),
    }


DEEDS = (Deed("analyze_git", "store what a repository's history says about its project", _arguments, _analyze),)
