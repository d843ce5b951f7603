"""`memory_rules record`, `session` and `topic`: what was said is kept (seed 004)."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.errors import Invalid, MemoryDisabled, NotFound
from memory.management.rules import Deed, asking
from memory.management.rules.keeping import agents_side, told_file
from memory.management.rules.surroundings import project_of
from memory.models import Agent, RecordedSession
from memory.policy import switches
from memory.recording import recorder, sessions, topics
from memory.recording.interactions import MOST, Interaction
from memory.recording.session_memory import Outcomes
from memory.recording.topic_memory import Stage
from memory.writing.edits import Edited

_PROJECT = "that it belongs to; default: told by MEMORY_PROJECT, the git remote, the folder"
# Options and what each is for.
_SAID = {
    "topic": "what it is about; where the category topic is on, the topic's memory is said anew",
    "context": "what was said or done before it that bears on it",
    "intent": "what the person was after",
    "effectiveness": "how well the response served that",
    "learnings": "what is to be learned from it, for another time",
    "metrics": "what its success is measured by: tests passed, time saved …",
}
_OUTCOMES = {
    "achieved": "which goals were achieved",
    "understandings": "what is understood now; default: what its recordings say was learned",
    "follow_up": "what is left to do",
    "clarity": "how clear the talk was",
    "resolution": "how the problem was solved; default: what its recordings say of their effectiveness",
    "satisfaction": "how content the person is",
    "depth": "how deep its topics were gone into",
}
_TEXTS = {
    "stage": "what became of the topic this time: one more of its stages",
    "definition": "what the topic is, in place of what was said before",
    "scope": "what belongs to it, and what does not; in place of what was said before",
    "level": "how well it is understood by now",
    "expertise": "how much the person knows of it",
    "style": "how the person likes to talk of it",
}
_LISTS = {
    "related": "related",
    "question": "questions",
    "approach": "approaches",
    "insight": "insights",
    "practice": "practices",
    "pitfall": "pitfalls",
    "resource": "resources",
}
_OF_LISTS = {
    "related": "a topic that is near to it",
    "question": "what is often asked of it",
    "approach": "how the person likes it to be done",
    "insight": "what is important to know of it",
    "practice": "what works well",
    "pitfall": "what is to be avoided",
    "resource": "where more is to be read: a page, a book, a file",
}


def _project(agent: Agent, given: str | None) -> str:
    return project_of(Path.cwd(), switches.rules_of(agent)) if given is None else given


# --- record


def _record_arguments(parser: CommandParser) -> None:
    for name, told in (("prompt", "what was asked, or told"), ("response", "what was answered")):
        either = parser.add_mutually_exclusive_group(required=name == "prompt")
        either.add_argument(f"--{name}", metavar="TEXT", help=f"{told}; - for standard input")
        either.add_argument(f"--{name}-file", metavar="FILE", help=f"{told}, as a file has it; - for standard input")
    parser.add_argument(
        "--session",
        default="",
        metavar="NAME",
        help="in which it was said; default: the one that goes on, or a new one",
    )
    parser.add_argument("--project", metavar="ID", help=_PROJECT)
    for name, told in _SAID.items():
        parser.add_argument(f"--{name}", default="", metavar="TEXT", help=told)
    parser.add_argument("--seconds", type=float, metavar="NUMBER", help="that the response took")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", help="that was used; may be repeated")
    parser.add_argument(
        "--automatic", action="store_true", help="as a runtime does: skipped in silence by a closed switch"
    )


def _record(task: Task, agent: Agent, *, automatic: bool, **options: Any) -> None:
    interaction = Interaction(
        prompt=_text(options, "prompt"),
        response=_text(options, "response"),
        session=options["session"],
        project=_project(agent, options["project"]),
        response_seconds=options["seconds"],
        tools=tuple(options["tool"]),
        **{name: options[name] for name in _SAID},
    )

    def act(row: Agent) -> recorder.Recorded:
        return recorder.record(row, interaction, asking.OPERATOR, requested=not automatic)

    found = asking.done(task, agent, act)
    if found is not None:
        name = None if found.session is None else found.session.name
        told = {"id": found.number, "session": name, "masked": found.masked, "skipped": found.skipped}
        task.result(told | {"file": told_file(task, agent, found.number)})


def _text(options: dict[str, Any], name: str) -> str:
    """From the command line, a file, or standard input. Raises Invalid, quoting nothing."""
    given, file = options[name], options[f"{name}_file"]
    if "-" not in (given, file):
        return _read(name, Path(file)) if file is not None else given or ""
    if name == "response" and "-" in (options["prompt"], options["prompt_file"]):
        raise Invalid("response", "and prompt cannot both come from standard input")
    return _decoded(name, sys.stdin.buffer.read(4 * MOST + 1))


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decoded(name, file.read(4 * MOST + 1))
    except OSError as problem:
        raise Invalid(f"{name}-file", f"cannot be read ({(problem.strerror or '').lower()})") from None


def _decoded(name: str, read: bytes) -> str:
    try:
        return read.decode()
    except UnicodeDecodeError:
        pass  # the error there holds the text
    raise Invalid(name, "is not UTF-8")


# --- session


def _session_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "what", choices=("begin", "end", "list"), metavar="begin|end|list", help="begin one, end one, or list all"
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="of one that begins: default, its time; of one that ends: default, the open one",
    )
    parser.add_argument(
        "--project", metavar="ID", help=f"of one that begins: {_PROJECT}. Of one that ends, where several have its name"
    )
    parser.add_argument("--goal", default="", metavar="TEXT", help="of one that ends: what it was for")
    for name, told in _OUTCOMES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default="", metavar="TEXT", help=f"of one that ends: {told}")


def _session(task: Task, agent: Agent, *, what: str, name: str, **options: Any) -> None:
    if what == "list":
        listed = asking.done(task, agent, _listed)
        if listed is not None:
            task.result(listed)
    elif what == "begin":
        begun = asking.done(task, agent, partial(_begin, name=name, project=_project(agent, options["project"])))
        if begun is not None:
            task.result({"session": begun.name, "project": begun.project})
    else:
        outcomes = Outcomes(**{each: options[each] for each in _OUTCOMES})
        told = {"project": options["project"] or "", "goal": options["goal"], "outcomes": outcomes}
        ended = asking.done(task, agent, partial(_end, name=name, **told))
        if ended is not None and ended["id"] is None:
            task.say("Nothing was recorded in this session, so that no memory of it is kept.")
        if ended is not None:
            task.result(ended | {"file": told_file(task, agent, ended["id"])})


def _require_open(agent: Agent) -> None:
    """Sessions go on without session memories; who asks for one is asked about them. Raises MemoryDisabled,
    CategoryDisabled."""
    if not agent.memory_enabled:
        raise MemoryDisabled
    switches.require_open(agent, ("session",))


def _begin(agent: Agent, *, name: str, project: str) -> RecordedSession:
    _require_open(agent)
    return sessions.begin(agent, name, asking.OPERATOR, project=project)


def _end(agent: Agent, *, name: str, project: str, goal: str, outcomes: Outcomes) -> dict[str, Any]:
    _require_open(agent)
    session = _meant(agent, name, project)
    edited = sessions.end_session(
        agent, session.name, asking.OPERATOR, project=session.project, goal=goal, outcomes=outcomes
    )
    return {"id": edited.memory.number if edited is not None and edited.memories else None, "session": session.name}


def _meant(agent: Agent, name: str, project: str) -> RecordedSession:
    """Of the project that is named; else of this folder's, and then of any. Raises NotFound, Invalid."""
    here = project or _project(agent, None)
    try:
        return sessions.meant(agent, name, here)
    except NotFound:
        if project:
            raise
    return sessions.meant(agent, name)


def _listed(agent: Agent) -> list[dict[str, Any]]:
    if not agent.memory_enabled:
        raise MemoryDisabled
    return [_row(session) for session in RecordedSession.objects.filter(agent_id=agent.pk).order_by("pk")]


def _row(session: RecordedSession) -> dict[str, Any]:
    """Names, times and counts, and nothing that was said."""
    return {
        "session": session.name,
        "project": session.project,
        "began_at": session.began_at.isoformat(),
        "last_at": session.last_at.isoformat(),
        "ended_at": None if session.ended_at is None else session.ended_at.isoformat(),
        "recordings": len(session.numbers),
        "id": session.memory,
    }


# --- topic


def _topic_arguments(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the topic, in whatever case")
    parser.add_argument("--project", metavar="ID", help=_PROJECT)
    parser.add_argument("--session", default="", metavar="NAME", help="in which it was talked of")
    for name, told in _TEXTS.items():
        parser.add_argument(f"--{name}", default="", metavar="TEXT", help=told)
    for name, told in _OF_LISTS.items():
        parser.add_argument(f"--{name}", action="append", default=[], metavar="TEXT", help=f"{told}; may be repeated")


def _topic(task: Task, agent: Agent, *, name: str, **options: Any) -> None:
    side = agents_side(agent)  # what is new to a topic tells what was said of it before
    given: dict[str, Any] = {each: options[each] for each in (*_TEXTS, "session")}
    given["project"] = _project(agent, options["project"])
    given |= {attribute: tuple(options[option]) for option, attribute in _LISTS.items()}
    stage = Stage(**given)

    def act(row: Agent) -> Edited:
        return topics.evolve(row, name, side, stage)

    edited = asking.done(task, agent, act)
    if edited is not None:
        number = edited.memory.number if edited.memories else topics.number_of(agent, name, given["project"])
        task.result({"id": number, "changed": edited.seq is not None, "file": told_file(task, agent, number)})


DEEDS = (
    Deed("record", "keep an interaction: what was asked, and what was answered", _record_arguments, _record),
    Deed("session", "begin, end or list sessions of talk", _session_arguments, _session),
    Deed("topic", "make a topic's memory, or say it anew; needs PALIMPSEST_AGENT_KEY", _topic_arguments, _topic),
)
