"""Take in the memories of other systems, after a person agrees (for `project migrate` and `project init`)."""

from __future__ import annotations

from config.commandline.progress import progress
from config.wording import several
from memory.errors import Invalid
from memory.management.agent_command import AgentCommand
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.transfer import migration
from memory.transfer.planning import SETTINGS
from memory.transfer.steps import Step

HOWS = {
    "all": "take in everything that is new",
    "select": "choose from the list by number",
    "alongside": "leave it where it is, and do not ask about it again",
    "skip": "not now",
}
_NOTHING = migration.Figures(None)


def is_selective(agent: Agent) -> bool:
    """Whether the settings allow a selective import."""
    return settings_document.value(switches.rules_of(agent), f"{SETTINGS}.selective_import_enabled") is True


def ask_how(command: AgentCommand, agent: Agent) -> str:
    """Ask the person at the terminal what to do. If nobody can be asked, skip."""
    if not command.can_ask():
        command.say(f"Nobody can be asked here: --how {'|'.join(HOWS)} says what to do.")
        return "skip"
    choices = {name: summary for name, summary in HOWS.items() if name != "select" or is_selective(agent)}
    for name, summary in choices.items():
        command.say(f"  {name:10} {summary}")
    while (answer := command.answer("What to do? [skip]") or "skip") not in choices:
        command.say(f"One of {', '.join(choices)}.")
    return answer


def ask_which(command: AgentCommand, steps: list[Step]) -> list[Step]:
    """Ask for numbers of the list until they are right. No answer means none."""
    if not command.can_ask():
        return []
    while True:
        try:
            return numbered(steps, command.answer("Which, such as 1-4,7? [none]"))
        except Invalid as wrong:
            command.say(f"It {wrong.problem}.")


def numbered(steps: list[Step], numbers: str) -> list[Step]:
    """The steps with these numbers of the list, such as 1-4,7. Raises Invalid."""
    wanted: set[int] = set()
    for part in filter(None, (part.strip() for part in numbers.split(","))):
        first, dash, last = (each.strip() for each in part.partition("-"))
        ends = (first, last if dash else first)
        if not all(each.isascii() and each.isdecimal() and len(each) < 9 for each in ends):
            raise Invalid("only", "must be numbers of the list, such as 1-4,7")
        begin, end = map(int, ends)
        if not 1 <= begin <= end <= len(steps):
            raise Invalid("only", f"must name numbers from 1 to {len(steps):,}")
        wanted.update(range(begin, end + 1))
    return [step for n, step in enumerate(steps, 1) if n in wanted]


def take_in(command: AgentCommand, agent: Agent, steps: list[Step], how: str, *, yes: bool) -> migration.Figures:
    """Store the memories, or note that they stay where they are. A person has to agree first."""
    many = several(len(steps), "memory", "memories")
    if how == "skip" or not steps:
        command.say("Nothing was stored.")
    elif how == "alongside":
        if command.confirms(f"Leave {many} beside, and not ask again? (y/n)", yes=yes):
            left = several(migration.leave(agent, steps), "memory", "memories")
            command.say(f"{left} left beside: asked about again when a file changes.")
        else:
            command.say("Nothing was noted.")
    elif not command.confirms(f"Store {many}? (y/n)", yes=yes):
        command.say("Nothing was stored.")
    else:
        with progress("Storing", unit="memories", total=len(steps)) as advance:
            return migration.migrate(agent, steps, command.operator, advance=advance)
    return _NOTHING


def in_words(done: migration.Figures) -> list[str]:
    if done.entry is None:
        return []
    stored = f"{several(done.stored, 'memory', 'memories')} stored, {done.revised:,} revised"
    return [
        f"{stored}, {several(done.tokens, 'token')}, as entry {done.entry}",
        f"rollback --import {done.entry} takes all of it back",
    ]
