"""Signed heads of all trails, in files in VAR_DIR/heads. They show that a trail lost its newest entries.

The chain of a trail does not show this. So a database administrator could bring back an earlier steward or key, and
remove the entries since then.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from time import monotonic

import structlog
from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from audit import heads
from audit.heads import BadHeads, Head
from audit.models import AuditEntry
from audit.verify import Problem, intact_entries
from config import at_once
from config.errors import Busy
from config.keyfiles import write_new
from memory.errors import TrailChanged, TrailShortened
from memory.models import Agent

log = structlog.get_logger("palimpsest.heads")

KEPT = 48  # files
LOOK_EVERY = 60  # seconds
FEW_SECONDS = 0.25  # of a request that waits for others of its tenant
FEW = 20  # entries that may be checked while SQLite's writers wait
End = tuple[int, bytes]  # number and MAC of the last entry
proven_ends: dict[int, End] = {}  # of the trails that this process has checked or continued since the newest file


def require_not_shortened(agent: Agent, read_again: Callable[[Agent], None]) -> None:
    """Check that the trail continues from its newest head to the end that the row names. If the row is older, call
    `read_again` first, because it may only be stale. Raises TrailShortened.

    This looks for a new file once a minute. A process checks each entry once for each file.
    """
    head = _by_agent(_newest(settings.VAR_DIR, int(monotonic() // LOOK_EVERY))).get(agent.pk)
    if head is None:
        return
    if agent.audit_seq < max(head["seq"], proven_ends.get(agent.pk, (0, b""))[0]):
        read_again(agent)
    end = agent.audit_seq, bytes(agent.audit_mac)
    if (start := _proven_until(agent.pk, head, end)) == end:
        return
    with _alone(agent) if end[0] > start[0] + FEW else nullcontext():
        start = _proven_until(agent.pk, head, end)
        # A redaction that is just committed can look like a change. So this looks twice.
        if start != end and not any(_continues(agent.pk, start, end) for _ in range(2)):
            advice = _ADVICE.format(agent.label)
            raise TrailShortened(f"Entries of the audit trail of {agent.label} are missing. {advice}")
        proven_ends[agent.pk] = end


def _proven_until(agent_id: int, head: Head, end: End) -> End:
    """The last entry up to `end` that this process has checked. Another thread may have checked later ones."""
    start = head["seq"], bytes.fromhex(head["mac"])
    proven = proven_ends.get(agent_id, start)
    return proven if proven[0] <= end[0] else start


@contextmanager
def _alone(agent: Agent) -> Iterator[None]:
    """One thread at a time checks a long trail, and few threads check or wait for trails of the same tenant. So the
    other threads can work. Raises Busy."""
    few, one = ("trails", agent.tenant_id), ("trail", agent.pk)
    begun = list[object]()
    try:
        for each, most, seconds in ((few, max(2, settings.WEB_THREADS // 4), FEW_SECONDS), (one, 1, at_once.MAX_WAIT)):
            if not at_once.begin({each: most}, seconds=seconds):
                raise Busy("Other requests of this tenant are checking a long audit trail. Try again in some seconds.")
            begun.append(each)
        yield
    finally:
        at_once.end(begun)


def is_behind(agent: Agent) -> bool:
    """Whether this process must check many entries of the trail, which may take seconds."""
    head = _by_agent(_newest(settings.VAR_DIR, int(monotonic() // LOOK_EVERY))).get(agent.pk)
    if head is None:
        return False
    last = Agent.objects.filter(pk=agent.pk).values_list("audit_seq", flat=True).first() or 0
    return last > FEW + proven_ends.get(agent.pk, (head["seq"], b""))[0]


def _continues(agent_id: int, start: End, end: End) -> bool:
    """Whether the chain is intact from entry `start` to entry `end`."""
    entries = intact_entries(agent_id, bool, start[0], end[0] + 1, end)
    return bool(entries) and bytes(entries[0]["mac"]) == start[1]


_ADVICE = "An operator must run 'verify_audit {0}', and 'confirm_trail {0} MAC' to accept the loss."


def known() -> dict[int, Head]:
    """The heads in the newest file, by agent."""
    return _by_agent(_newest.__wrapped__(settings.VAR_DIR, 0))


def write(confirmed: Mapping[int, str] | None = None) -> None:
    """Write a new file. The head of a shortened trail stays, except for the agents in `confirmed`, with their new MACs.
    Raises TrailChanged if such a trail has another end."""
    folder, confirmed = Path(settings.VAR_DIR, "heads"), confirmed or {}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    export = heads.export(earlier=[head for agent_id, head in known().items() if agent_id not in confirmed])
    if any({head["agent_id"]: head["mac"] for head in export["heads"]}.get(pk) != mac for pk, mac in confirmed.items()):
        raise TrailChanged("The trail has another last entry than you confirmed. Run 'verify_audit' again.")
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
def _by_agent(path: Path | None) -> dict[int, Head]:
    """The heads in a file. If it cannot be read, the heads in the newest file that can be read."""
    proven_ends.clear()
    for file in sorted(path.parent.glob("*.json"), reverse=True) if path else ():
        try:
            return {head["agent_id"]: head for head in heads.read(file.read_bytes())}
        except (OSError, BadHeads):
            log.error("heads not read", number=int(file.stem))
    return {}


def problems() -> Iterator[Problem]:
    """Name the heads in the newest file that lack entries which existed when the file was written. SQL may have hidden
    these entries. The newest entries do not count, because a long import may not have been committed yet."""
    written_at = _written_at()
    if written_at is not None:
        before = AuditEntry.objects.filter(at__lt=written_at - timedelta(seconds=settings.TASK_SECONDS))
        last = dict(before.values_list("agent_id").annotate(Max("seq")).order_by())
        for agent_id, head in known().items():
            if last.get(agent_id, 0) > head["seq"]:
                yield Problem(head["agent"], head["seq"], "the signed heads lack later entries that existed already")


def stale_since() -> datetime | None:
    """When the newest file was written, if a trail has grown for two hours since then. SQL can stop the task that
    writes these files."""
    written_at = _written_at()
    if written_at is None:
        return None
    is_old = AuditEntry.objects.filter(at__gt=written_at + timedelta(hours=2), at__lte=timezone.now()).exists()
    return written_at if is_old else None


def _written_at() -> datetime | None:
    file = _newest.__wrapped__(settings.VAR_DIR, 0)
    return datetime.fromtimestamp(file.stat().st_mtime, UTC) if file else None
