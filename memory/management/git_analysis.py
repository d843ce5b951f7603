"""Analyze the git history of a folder, and store it as a memory (for `project analyze_git` and `project init`)."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import Any, NamedTuple

from config.commandline.progress import progress
from memory.git_history import report, storage
from memory.git_history.analysis import Analysis, Limits, Parts, analyze
from memory.git_history.repository import Repository
from memory.management.agent_command import AgentCommand
from memory.models import Agent, HistoryAnalysis
from memory.policy import switches


class Looked(NamedTuple):
    """The result of looking at a history: an analysis, or an earlier one that is still current, or neither. `summary`
    says which."""

    summary: str
    analysis: Analysis | None = None
    earlier: HistoryAnalysis | None = None


def look(agent: Agent, folder: Path, project: str, limits: Limits, parts: Parts, *, again: bool = False) -> Looked:
    """Analyze the history, unless an earlier analysis is current. Raises Invalid."""
    with Repository(folder) as repository:
        earlier, head, rules = storage.last(agent, project), repository.head, switches.rules_of(agent)
        if earlier and head and not again and storage.is_current(agent, earlier, head, limits, parts, rules):
            at = f"{earlier.at:%Y-%m-%d %H:%M} UTC"
            return Looked(f"nothing was committed since the analysis of {at}", earlier=earlier)
        with progress("Analyzing", unit="commits") as advance:
            found = analyze(repository, limits, parts, now=int(time()), progress=advance)
    if found is None:
        return Looked("nothing to analyze: the repository has no commits")
    return Looked(report.covered(found), found)


def store(command: AgentCommand, agent: Agent, project: str, found: Analysis) -> dict[str, Any]:
    """Store an analysis as a memory. Returns the memory, and the path of its file."""
    done = storage.store(agent, project, found, command.operator)
    return {
        "id": done.number,
        "project": project,
        "commits": len(found.facts),
        "head": found.head,
        "new": done.is_new,
        "file": command.file_of(agent, done.number),
    }
