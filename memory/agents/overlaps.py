"""Compares the memory file and the vault of an agent with those of all agents. Two paths overlap if they are equal, or
if one is a folder that contains the other."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from django.db.models import Q

from memory.errors import Invalid
from memory.models import Agent
from memory.vault.disk import mark_in


def clash(agent: Agent, fields: Iterable[str]) -> Invalid | None:
    """Return an error if the path in one of these fields overlaps with the file or vault of an agent."""
    overlaps = {"memory_path": _file_overlaps, "vault_path": _vault_overlaps}
    field = next((name for name in fields if overlaps[name](agent)), "")
    return Invalid(field, "overlaps with the file or vault of an agent; use another path") if field else None


def _file_overlaps(agent: Agent) -> bool:
    """Whether the agent's memory file overlaps with the file or vault of another agent, or with the agent's own vault.
    Two paths overlap if one is a folder that contains the other. Two agents' paths also overlap if they are equal."""
    path = agent.memory_path
    if not path:
        return False
    above = [str(each) for each in PurePath(path).parents]
    clash = Q(memory_path__in=[path, *above]) | Q(memory_path__startswith=path.rstrip(os.sep) + os.sep)
    if agent.vault_path in (path, *above) or agent.vault_path.startswith(path.rstrip(os.sep) + os.sep):
        return True
    if any(mark_in(Path(each)) for each in above):
        return True  # a former vault, whose agent may return to it
    others = Agent.objects.exclude(pk=agent.pk)
    return others.filter(clash | _vault_in([path, *above], below=path)).exists()


def _vault_in(paths: list[str], *, below: str) -> Q:
    return Q(vault_path__in=paths) | Q(vault_path__startswith=below.rstrip(os.sep) + os.sep)


def _vault_overlaps(agent: Agent) -> bool:
    """Whether the agent's vault overlaps with another agent's vault, or with the memory file of any agent.

    Two paths overlap if they are equal, or if one contains the other.
    """
    path = agent.vault_path
    if not path:
        return False
    below = path.rstrip(os.sep) + os.sep
    above = [str(each) for each in PurePath(path).parents]
    if agent.memory_path in (path, *above) or agent.memory_path.startswith(below):
        return True
    others = Agent.objects.exclude(pk=agent.pk)
    in_files = Q(memory_path__in=[path, *above]) | Q(memory_path__startswith=below)
    return others.filter(_vault_in([path, *above], below=path) | in_files).exists()
