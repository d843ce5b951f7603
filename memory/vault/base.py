"""The folder of a vault (seed 004, "Storage Path Handling"): where a path leads, and whether a vault can be there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from memory.errors import FileFault, Invalid
from memory.models import Agent
from memory.vault.disk import held

ROOM = 10_000_000  # bytes that have to be free where one is begun
LONGEST = 1_000  # characters
FIELD = "vault_path"


def roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in settings.VAULT_ROOTS)


def own_folder(tenant: str, agent: str) -> Path:
    """Where an agent's vault is, unless somebody says otherwise."""
    return Path(settings.VAULT_ROOTS[0]) / tenant / agent


def resolved(given: str, beside: Path, allowed: Sequence[Path]) -> str:
    """The absolute path: of a relative one below `beside` (the project's root), of ~ in the home, of an absolute one as
    it is. It lies under one of the `allowed` folders wherever links lead, and is told without them, so that two names
    of one folder are seen to be one. Raises Invalid."""
    if not given:
        return ""
    if not given.isprintable() or len(given) > LONGEST:
        raise Invalid(FIELD, f"must be at most {LONGEST:,} characters, none of them a control character")
    try:
        real = Path(os.path.realpath(os.path.normpath(beside / Path(given).expanduser())))
        is_file = any(each.is_file() for each in (real, *real.parents))
    except (OSError, RuntimeError):
        raise Invalid(FIELD, "is no path that the system can follow") from None
    if not any(_is_below(real, root) for root in allowed):
        raise Invalid(FIELD, f"must lie under {' or '.join(map(str, allowed))} (VAULT_ROOTS)")
    if is_file:
        raise Invalid(FIELD, "is a file, or lies below one; name a folder")
    return str(real)


def _is_below(real: Path, root: Path) -> bool:
    trusted = Path(os.path.realpath(root))
    return real.is_relative_to(trusted) and real != trusted


def require_usable(path: str) -> None:
    """That it is there or can be made, can be written to, and has room. Raises FileFault, FileElsewhere."""
    with held(Path(path), roots()):  # makes it, and writes to it
        free = shutil.disk_usage(path).free
    if free < ROOM:
        raise FileFault(f"{path}: has {free:,} bytes left; {ROOM:,} are needed", "no space left")


def alternatives(agent: Agent) -> list[str]:
    """Other places where a vault could be."""
    found = []
    for root in roots():
        path = str(root / agent.tenant.slug / agent.slug)
        try:
            require_usable(path)
        except FileFault:
            continue
        found.append(path)
    return found
