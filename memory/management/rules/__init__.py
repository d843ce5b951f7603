"""What `memory_rules` can do beside the switches: each module here has its deeds, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.core.management.base import CommandParser


@dataclass(frozen=True, slots=True)
class Deed:
    """One subcommand: its name, a line of help, the arguments it adds, and what it does with them. It returns the exit
    code, or nothing for 0."""

    name: str
    told: str
    arguments: Callable[[CommandParser], None]
    run: Callable[..., int | None]  # (task, agent, **options)


def no_arguments(_: CommandParser) -> None:
    """For a deed that takes the agent alone."""
