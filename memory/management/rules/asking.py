"""Asking a person before a switch is turned on, which nothing else does (seed 004, "Memory Disabled Behavior")."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from audit.trail import Actor
from config.commandline import Task, is_attended
from memory.agents import rule_changes
from memory.errors import CategoryDisabled, MemoryDisabled
from memory.models import Agent
from memory.policy import settings_document

OPERATOR = Actor.operator("memory_rules")
T = TypeVar("T")
_SWITCHES = {
    settings_document.MASTER: "memory as a whole",
    "memory_rules.auto_recording.enabled": "automatic recording",
    "memory_rules.project_support.git_history_analysis.enabled": "the analysis of git history",
}
_HINT = "; --yes says that a person wants it"

_WORDS = {"y": True, "yes": True, "n": False, "no": False, "": False}


def agreed(task: Task, on: list[str], *, yes: bool = False, hint: str = _HINT, question: str = "") -> bool:
    """Whether a person says yes to switching these on. Where nobody can be asked, and --yes is not there, it is no."""
    if not yes:
        if is_attended():
            task.say(rule_changes.GOOD_FOR)
        for path in on:
            task.say(f"Would be switched on: {_in_words(path)} ({path})")
    return confirmed(task, question or question_of(on), yes=yes, hint=hint)


def question_of(on: list[str]) -> str:
    """The seed's, of the master switch; of others one that says which they are."""
    if settings_document.MASTER in on:
        return rule_changes.QUESTION
    named = " and ".join(map(_in_words, on))
    is_off = "is" if len(on) == 1 else "are"
    return f"{named[0].upper()}{named[1:]} {is_off} currently switched off. Switch on? (y/n)"


def _in_words(path: str) -> str:
    """What a switch switches on."""
    name = path.removesuffix(".enabled").removeprefix("memory_rules.")
    above, _, last = name.rpartition(".")
    if above == "categories":
        return f"the category {last}"
    return _SWITCHES.get(path, last.replace("_", " "))


def confirmed(task: Task, question: str, *, yes: bool = False, hint: str = _HINT) -> bool:
    """Whether a person says yes; what is neither that nor a no is asked again. Where nobody can be asked, and --yes is
    not there, it is no."""
    if yes:
        return True
    if not is_attended():
        task.say(f"Nobody can be asked here, which is a no{hint}.")
        return False
    while (said := answer(task, question)) not in _WORDS:
        pass
    return _WORDS[said]


def answer(task: Task, question: str) -> str:
    """What somebody types, in lower case; "" where they end it."""
    task.stderr.write(f"{question} ", lambda plain: plain, ending="")  # not in the red of errors
    try:
        return input().strip().lower()
    except EOFError:
        return ""


def can_ask() -> bool:
    """Whether somebody is there."""
    return is_attended()


def done(task: Task, agent: Agent, act: Callable[[Agent], T]) -> T | None:
    """What `act` returns. A closed switch it meets is asked about: a yes turns it on, and it is done then; a no is
    None, and nothing is done."""
    while True:
        try:
            return act(agent)
        except MemoryDisabled:
            path, which = settings_document.MASTER, ""
        except CategoryDisabled as closed:
            path, which = f"memory_rules.categories.{closed.category}.enabled", f" --category {closed.category}"
        hint = f"; memory_rules enable {agent.label}{which} switches it on"
        if not agreed(task, [path], hint=hint, question=rule_changes.QUESTION):
            task.say("Nothing was done.")
            return None
        agent = _turned_on(agent, path)


def _turned_on(agent: Agent, path: str) -> Agent:
    if path == settings_document.MASTER:
        return rule_changes.change(agent, OPERATOR, enabled=True)
    return rule_changes.set_one(agent, OPERATOR, path, "true")
