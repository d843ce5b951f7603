"""Storing a memory as the seed has it, and opening a private one's file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from audit.trail import Actor
from config.commandline import Task, is_shown
from config.errors import FAILED
from config.wording import several
from memory.access import request_key
from memory.access.authentication import agent_key, is_key_of
from memory.errors import Invalid, KeyRejected
from memory.management.removal import KEY
from memory.management.rules import Deed, asking, texts
from memory.management.rules.surroundings import project_of
from memory.markdown import sections
from memory.masking.neutral import neutral_whole
from memory.masking.scanner import masked_together
from memory.models import Agent, Kind
from memory.policy import paths, settings_document, switches
from memory.policy.categories import NAMES, PRIVATE, PROJECT, SCOPES, scope_of
from memory.policy.names import checked_project
from memory.policy.validation import Draft
from memory.vault import sealed, writer
from memory.vault.visible import visible
from memory.writing import operations

_SECTIONS = ("context", "understanding", "decision", "outcome", "related")
_OF_CREDENTIAL = ("service", "credential")
_HEADINGS = dict(zip(_SECTIONS, sections.names("technical"), strict=True))


def is_agents_side(agent: Agent) -> bool:
    """Whether the agent's key is in the environment."""
    return is_key_of(agent, os.environ.get(KEY, ""))


def agents_side(agent: Agent) -> Actor:
    """The agent itself, by its key in the environment. Raises KeyRejected."""
    given = os.environ.get(KEY, "")
    if not is_key_of(agent, given):
        raise KeyRejected(f"This is for {agent.label} itself: set {KEY} to its key.")
    key = agent_key(given)
    request_key.note(key)  # which may end while a lock is waited for
    return Actor.agent(key.prefix)


def names_of_files(agent: Agent) -> Callable[[str], str]:
    """How a file's path is told: a name has words of its memory in it, so that whoever has not the agent's key is told
    the folder alone; but for an index, whose name says nothing."""
    if is_agents_side(agent):
        return str
    return lambda path: path if not path or Path(path).name == paths.INDEX else str(Path(path).parent / "…")


# --- store


def _for_store(parser: CommandParser) -> None:
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to remember; - for standard input")
    parser.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=NAMES)
    parser.add_argument("--project", metavar="ID", help="default, of a project's category: this folder's")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="may be given several times")
    parser.add_argument("--service", metavar="NAME", help="of a credential: its file is called by it")
    parser.add_argument("--credential", metavar="KIND", help="of a credential: api-key, password, token …")
    parser.add_argument("--journal", action="store_true", help="in the dated log, and not for ever")
    for name, heading in _HEADINGS.items():
        parser.add_argument(f"--{name}", metavar="TEXT", help=f"the section {heading}")


def _store(task: Task, agent: Agent, **options: Any) -> int | None:
    category = options["category"] or ("contextual" if options["project"] else "behavioral")
    _require_credential(category, options)
    text, tags, hidden = _fit_for(category, _content(category, options), _tags(options), switches.rules_of(agent))
    draft = Draft(
        text,
        kind=Kind.JOURNAL if options["journal"] else Kind.CORE,
        category=category,
        project=_project(agent, category, options["project"]),
        tags=tags,
    )

    def act(row: Agent) -> int:
        return operations.remember(row, [draft], asking.OPERATOR).memory.number

    number = asking.done(task, agent, act)
    if number is None:
        return None if asking.can_ask() else FAILED
    if hidden:
        task.say(f"{several(hidden, 'secret')} masked: credentials and keys are stored as such, with --category.")
    told = {"id": number, "category": category, "project": draft.project, "masked": hidden}
    task.result(told | {"file": told_file(task, agent, number)})
    return None


def _require_credential(category: str, options: dict[str, Any]) -> None:
    given = [name for name in _OF_CREDENTIAL if options[name]]
    if given and category not in paths.NAMED_BY_SERVICE:
        raise Invalid(given[0], f"is of the categories {' and '.join(paths.NAMED_BY_SERVICE)} alone: name one of them")


def _fit_for(category: str, text: str, tags: list[str], rules: Mapping[str, Any]) -> tuple[str, list[str], int]:
    """Without brands; and without secrets, where they would stand in a file for whoever can read it."""
    text = neutral_whole(text)
    if scope_of(category) == PRIVATE or not settings_document.is_on(
        rules, "capture_settings", "sensitive_data_masking"
    ):
        return text, tags, 0
    (text, *tags), hidden = masked_together([text, *tags])
    return text, tags, hidden


def _content(category: str, options: dict[str, Any]) -> str:
    """The text, or the sections that were given, with the text as the main one. Raises Invalid."""
    text = texts.read(options["text"]) if options["text"] is not None else ""
    told = {heading: options[name] for name, heading in _HEADINGS.items() if options[name]}
    known = sections.names(category)
    for name in _SECTIONS:
        if options[name] and _HEADINGS[name] not in known:
            raise Invalid(name, f"is no section of {category}, whose text may have the sections {', '.join(known)}")
    if not told:
        if not text:
            raise Invalid("text", "is needed: give it, - for standard input, or --context, --understanding …")
        return text
    main = sections.main_section(category)
    if text and main in told:
        raise Invalid("text", f"is the section {main}: give one of the two")
    told |= {main: text} if text else {}
    return sections.composed({name: told.get(name, "") for name in known})


def _project(agent: Agent, category: str, given: str | None) -> str:
    if given is not None:
        return checked_project(given)
    return project_of(Path.cwd(), switches.rules_of(agent)) if scope_of(category) == PROJECT else ""


def _tags(options: dict[str, Any]) -> list[str]:
    named = {name: options[name] for name in _OF_CREDENTIAL if options[name]}
    return [*options["tag"], *(f"{name}:{paths.checked_service(value, name)}" for name, value in named.items())]


def told_file(task: Task, agent: Agent, number: int | None) -> str | None:
    """The path of a memory's file, after it was read back. If there is none, the command says why."""
    path = writer.file_of(agent, number) if number is not None else None
    if number is not None and path is None:
        task.say(f"The memory is stored, and has no file: {writer.why_no_file(Agent.objects.get(pk=agent.pk))}.")
    return path


# --- show


def _for_show(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a path, or one below the vault's folder")


def _show(task: Task, agent: Agent, *, file: str, **_: Any) -> int | None:
    agents_side(agent)
    path = Path(file)
    if agent.vault_path and not path.exists():
        path = Path(agent.vault_path) / file
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise Invalid("file", f"cannot be read ({(problem.strerror or '').lower()})") from None
    opened = asking.done(task, agent, partial(sealed.open_file, data=data))
    if opened is None:
        return None
    # To a program as it is; to a person so that nothing of it commands the terminal.
    task.stdout.write(visible(opened.content) if is_shown() else opened.content)
    if opened.tags:
        task.say(f"Tags: {', '.join(opened.tags)}")
    return None


DEEDS = (
    Deed("store", "store one memory, in the sections of its template", _for_store, _store),
    Deed("show", "open the sealed block of a private memory's file", _for_show, _show),
)
