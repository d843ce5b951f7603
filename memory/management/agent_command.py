"""The base class of the commands for the memory of one agent.

It runs the actions of a command, and asks questions at the terminal. This module also checks the
agent's key in the environment, and finds the project of the folder in which a command runs.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from dulwich.config import ConfigFile

from audit.trail import Actor
from config.commandline import Task, is_attended
from memory.access.authentication import agent_key, agent_named, is_key_of, new_request, request_key
from memory.agents import rule_changes
from memory.errors import CategoryDisabled, Invalid, KeyRejected, MemoryDisabled
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.paths import INDEX
from memory.policy.projects import VARIABLE, identify
from memory.policy.validation import checked_project
from memory.vault import writer
from memory.writing import edits

_GIT_TIMEOUT = 10  # seconds


def project_of(folder: Path, rules: Mapping[str, Any]) -> str:
    """Return the id of the folder's project. Raises Invalid."""
    root = repository(folder)
    remote = _remote(root / ".git") if root else ""
    return identify(rules, os.environ.get(VARIABLE, ""), remote, str(root or folder.absolute()))


def repository(folder: Path) -> Path | None:
    """Return the root of the git repository that contains the folder. Return None if there is no repository."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def are_ignored(root: Path, paths: Sequence[str]) -> bool:
    """Return whether git ignores all of these paths. The paths need not exist. Return False if git cannot be run."""
    command = ["git", "-c", "core.fsmonitor=", "-C", str(root), "check-ignore", "--", *paths]
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT, check=False)  # noqa: S603
        return len(ran.stdout.splitlines()) == len(paths)
    return False


def _remote(git: Path) -> str:
    """Return the URL of the remote `origin`. Return "" if the remote is not set, or if the configuration cannot be
    read.

    The configuration file is read without git, because git refuses to read the repositories of other users.
    """
    with suppress(KeyError, OSError, ValueError):
        if git.is_file():  # a worktree: this file has the path of its git folder
            git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
            shared = git / "commondir"
            git = git / shared.read_text("utf-8").strip() if shared.is_file() else git
        return ConfigFile.from_path(str(git / "config")).get((b"remote", b"origin"), b"url").decode()
    return ""


KEY = "PALIMPSEST_AGENT_KEY"


def has_agents_key(agent: Agent) -> bool:
    """Return whether the agent's key is in the environment."""
    return is_key_of(agent, os.environ.get(KEY, ""))


def agents_side(agent: Agent) -> Actor:
    """Authenticate the agent with the key in the environment, and return the agent as an actor. Raises KeyRejected."""
    if not has_agents_key(agent):
        raise KeyRejected(f"Only {agent.label} itself can do this: set {KEY} to its valid key.")
    key = agent_key(os.environ[KEY])
    request_key.set(key)  # this key is checked again after the agent is locked
    return Actor.agent(key.prefix)


def shown_path(agent: Agent, path: str) -> str:
    """Return the path of a vault file in the form that may be shown. Without the agent's key, "…" replaces the file
    name, because this name may have words of a memory."""
    if not path or Path(path).name == INDEX or has_agents_key(agent):
        return path
    return str(Path(path).parent / "…")


PROJECT_HELP = "default: from MEMORY_PROJECT, the git remote or the current folder"
_SWITCHES = {
    settings_document.MASTER: "memory as a whole",
    "memory_rules.auto_recording.enabled": "automatic recording",
    "memory_rules.project_support.git_history_analysis.enabled": "git history analysis",
}
_Action = Callable[..., int | None]
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}


class AgentCommand(Task):
    """A command for one agent. Each action is a method. It takes the agent and the options, and returns the exit code.
    None means the exit code 0.

    If an action cannot run because a switch is off, the command asks whether to turn this switch on. If the answer is
    yes, it runs the action again. If the answer is no, or if there is no terminal, it does nothing.
    """

    def add_action(self, actions: Any, name: str, action: _Action, summary: str) -> CommandParser:
        """Add the subcommand `name`. It runs `action`."""
        about = f"{summary[0].upper()}{summary[1:]}."
        parser: CommandParser = actions.add_parser(name, help=summary, description=about)
        self.add_agent(parser, action)
        return parser

    def add_agent(self, parser: CommandParser, action: _Action) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="the agent whose memory is used, such as acme/ada")
        parser.set_defaults(action=action)

    @property
    def operator(self) -> Actor:
        """The operator who runs this command, as an actor for the audit trail."""
        return Actor.operator(type(self).__module__.rpartition(".")[2])

    def run(self, *, agent: str, action: _Action, code_if_off: int | None = None, **options: Any) -> int | None:
        """Run an action. `code_if_off` is the exit code if a switch is off and the input is not a terminal."""
        target = agent_named(agent)
        edits.require_key(target)
        with new_request():
            while True:
                try:
                    return action(target, **options)
                except MemoryDisabled:
                    path, which = settings_document.MASTER, ""
                except CategoryDisabled as off:
                    path, which = f"memory_rules.categories.{off.category}.enabled", f" --category {off.category}"
                hint = f"run 'manage.py rules enable {target.label}{which}' to turn it on"
                if not self.agrees_to_enable([path], hint=hint, question=rule_changes.QUESTION):
                    self.say("Nothing was done.")
                    return None if self.can_ask() else code_if_off
                target = self.enable(target, path)

    def enable(self, agent: Agent, path: str) -> Agent:
        """Turn on a switch, after a person has agreed."""
        return rule_changes.make(agent, self.operator, wanted_value(path, "true"), agreed=[path]).agent

    # --- questions

    def can_ask(self) -> bool:
        """Return whether a person at a terminal can answer questions."""
        return is_attended()

    def agrees_to_enable(
        self, paths: Sequence[str], *, yes: bool = False, hint: str = "pass --yes to confirm", question: str = ""
    ) -> bool:
        """Ask a person whether to turn these switches on. Return True if the person agrees."""
        if not yes:
            if self.can_ask():
                self.say(rule_changes.GOOD_FOR)
            for path in paths:
                self.say(f"To turn on: {_described(path)} ({path})")
        return self.confirms(question or _question(paths), yes=yes, hint=hint)

    def confirms(self, question: str, *, yes: bool = False, hint: str = "pass --yes to confirm") -> bool:
        """Return whether a person answers the question with yes. The question is repeated until the answer is yes or
        no. Without a terminal, the answer is no."""
        if yes:
            return True
        if not self.can_ask():
            self.say(f"The input is not a terminal, so the answer is no: {hint}.")
            return False
        while (answer := self.answer(question)) not in _ANSWERS:
            pass
        return _ANSWERS[answer]

    # --- options and results

    def project(self, agent: Agent, option: str | None, folder: Path | None = None) -> str:
        """Return the project that the option names. Without the option, return the project of the folder. Raises
        Invalid."""
        if option is not None:
            return checked_project(option)
        return project_of(folder or Path.cwd(), switches.rules_of(agent))

    def stored(self, agent: Agent, number: int | None, **more: Any) -> None:
        """Print the number of a memory that was stored, and the path of its file."""
        self.result({"id": number} | more | {"file": self.file_of(agent, number)})

    def file_of(self, agent: Agent, number: int | None) -> str | None:
        """Return the path of a memory's file. If the memory has no file, print the reason and return None."""
        if number is None:
            return None
        found = writer.files_or_reasons(Agent.objects.select_related("tenant").get(pk=agent.pk), [number])[0]
        if found["no_file"]:
            self.say(f"The memory is stored, but has no file: {found['no_file']}.")
        return found["file"]


def wanted_value(path: str, value: str) -> rule_changes.Wanted:
    """Return a change: the setting `path` gets the value that a person typed. The master switch is handled
    separately, because it is not one of the rules. Raises Invalid."""
    if path != settings_document.MASTER:
        return rule_changes.Wanted(key=path, value=value)
    if value not in ("true", "false"):
        raise Invalid(path, "must be true or false")
    return rule_changes.Wanted(value == "true")


def _described(path: str) -> str:
    """Return a text that says what a switch turns on."""
    group, _, name = path.removesuffix(".enabled").rpartition(".")
    if group.endswith(".categories"):
        return f"the category {name}"
    return _SWITCHES.get(path, name.replace("_", " "))


def _question(paths: Sequence[str]) -> str:
    if settings_document.MASTER in paths:
        return rule_changes.QUESTION
    names = " and ".join(map(_described, paths))
    return f"{names[0].upper()}{names[1:]} {'is' if len(paths) == 1 else 'are'} currently off. Turn on? (y/n)"
