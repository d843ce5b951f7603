"""Signed heads of all trails, in files in VAR_DIR/heads. They show that a trail lost its newest entries.

The chain of a trail does not show this. So a database administrator could bring back an earlier steward or key, and
remove the entries since then.
"""

import json
import secrets
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import monotonic

import structlog
from django.conf import settings

from audit import heads
from audit.heads import BadHeads, Head
from config.keyfiles import write_new
from memory.errors import TrailShortened
from memory.models import Agent

log = structlog.get_logger("palimpsest.heads")

KEPT = 48  # files
LOOK_EVERY = 60  # seconds


def require_not_shortened(agent: Agent, read_again: Callable[[Agent], None]) -> None:
    """Compare the agent's row with its newest head. If the row is older, call `read_again` first, because it may only
    be stale. Raises TrailShortened.

    This looks for a new file once a minute, and reads an entry once for each file.
    """
    known, unchanged = _by_agent(_newest(settings.VAR_DIR, int(monotonic() // LOOK_EVERY)))
    head = known.get(agent.pk)
    if head is None:
        return
    if agent.audit_seq < head["seq"]:
        read_again(agent)
    if agent.audit_seq < head["seq"] or (agent.pk not in unchanged and any(heads.problems([head]))):
        raise TrailShortened(f"Entries of the audit trail of {agent.label} are missing. {_ADVICE.format(agent.label)}")
    unchanged.add(agent.pk)


_ADVICE = "An operator must run 'verify_audit {0}', and 'confirm_trail {0}' to accept the loss."


def known() -> dict[int, Head]:
    """The heads in the newest file, by agent."""
    return _by_agent(_newest.__wrapped__(settings.VAR_DIR, 0))[0]


def write(confirmed: int = 0) -> None:
    """Write a new file. The head of a shortened trail stays, except for the agent with the id `confirmed`."""
    folder = Path(settings.VAR_DIR, "heads")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    export = heads.export(earlier=[head for agent_id, head in known().items() if agent_id != confirmed])
    draft, last = folder / f".{secrets.token_hex(8)}", _newest.__wrapped__(settings.VAR_DIR, 0)
    write_new(draft, json.dumps(export))
    draft.replace(folder / f"{int(last.stem) + 1 if last else 1:010}.json")
    for old in sorted(folder.glob("*.json"))[:-KEPT]:
        old.unlink(missing_ok=True)
    _newest.cache_clear()


@lru_cache(maxsize=1)
def _newest(var: Path, minute: int) -> Path | None:  # noqa: ARG001  a new minute is a new look
    """The newest file. The numbers in the names do not depend on the clock."""
    return max(Path(var, "heads").glob("*.json"), default=None)


@lru_cache(maxsize=1)
def _by_agent(path: Path | None) -> tuple[dict[int, Head], set[int]]:
    """The heads in a file, and a set for the agents whose entry was found. A file that cannot be read has no heads."""
    try:
        return {head["agent_id"]: head for head in heads.read(path.read_bytes())} if path else {}, set()
    except (OSError, BadHeads):
        log.error("heads not read")
        return {}, set()
