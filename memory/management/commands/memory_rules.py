"""An older command whose actions are now in six other commands. Each action runs the command that replaces it."""

import argparse
from typing import Any

from django.core.management import load_command_class
from django.core.management.base import CommandParser

from config.commandline import Task

COMMANDS = {
    "init": "project init",
    "status": "rules status",
    "enable": "rules enable",
    "disable": "rules disable",
    "settings": "rules settings",
    "store": "remember store",
    "record": "remember record",
    "session": "remember session",
    "topic": "remember topic",
    "retrieve": "recall",
    "cleanup": "cleanup",
    "index": "vault index",
    "show": "vault show",
    "detect": "project detect",
    "migrate": "project migrate",
    "analyze_git": "project analyze_git",
}
_PAIRS = ", ".join(f"'{action}' is '{command}'" for action, command in COMMANDS.items())


class Command(Task):
    help = f"The older form of the commands rules, remember, recall, cleanup, vault and project: {_PAIRS}"
    needs_sound_database = False  # the new command checks the database
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=list(COMMANDS), metavar="ACTION", help=", ".join(COMMANDS))
        arguments = "the agent, and the arguments of the action"
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="TENANT/AGENT …", help=arguments)

    def run(self, *, action: str, arguments: list[str], **options: Any) -> None:
        command, *words = COMMANDS[action].split()
        load_command_class("memory", command).run_from_argv(["manage.py", command, *words, *arguments])
