"""Dreams: requests to refine a memory store. The names and the rules are those of Anthropic's API.

A worker runs a dream in a refinement session. The session's ledger is the memories of the store, or of a copy. The
model also gets the recordings of some recorded sessions, as data. An agent has at most one dream that is not over, as
it has at most one open session.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from django.db.models import Max
from django.utils import timezone

from audit import redactions
from audit.trail import Actor
from config.errors import DomainError
from config.queue import LOCK_SECONDS
from memory import errors
from memory.access.authentication import new_request, request_key, require_valid_key
from memory.models import Agent, AgentKey, DueReason, Memory, RecordedSession
from memory.policy import switches, tokens
from memory.silo.silo import Silo
from memory.writing import edits, stores
from refinement import allowance, ledger, schedule
from refinement import session as sessions
from refinement.errors import AllowanceSpent, DreamOver, DreamRunning
from refinement.llm.base import NoModel
from refinement.models import Dream, Mode, Outcome, RefinementSession, held

MAX_TOKENS = 2_000_000  # of a memory store; a session can refine less
MOST_RECORDED, RECORDED_BYTES = 10_000, 5_000_000  # recordings (sealed) that are read, while the agent is locked
RECORDED_SHARE = 4  # recordings have at most this part of a batch
MAX_INSTRUCTIONS = 4_096  # characters
KEPT = 1_000  # dreams of an agent whose instructions are kept, because a claim deletes them
_WORKER = Actor.system("dream")
_OPEN = (Dream.Status.PENDING, Dream.Status.RUNNING)


def find(agent: Agent, number: int) -> Dream:
    """Raises NotFound."""
    found = Dream.objects.filter(agent_id=agent.pk, number=number).first()
    if found is None:
        raise errors.NotFound("The dream does not exist.")
    return found


def create(
    agent: Agent, store: int, recorded: Sequence[RecordedSession], *, is_copy: bool, instructions: str = ""
) -> Dream:
    """Request a dream. The caller has locked the agent, and wakes a worker.

    Raises NotFound, StoreArchived, Invalid, DreamRunning, NoModel, BackingOff, AllowanceSpent, MemoryDisabled.
    """
    switches.require_on(agent)
    archived_at = stores.find(agent, store).archived_at
    _require_small(agent, store)
    if archived_at is not None and not is_copy:
        raise errors.StoreArchived
    if not agent.model:
        raise NoModel
    dreams = Dream.objects.filter(agent_id=agent.pk)
    if dreams.filter(status__in=_OPEN).exists():
        raise DreamRunning
    schedule.require_useful(agent, is_dream=True)
    if allowance.is_used_up(agent.tenant):
        raise AllowanceSpent("The tenant has used up its model tokens of this month.")
    number = (dreams.aggregate(last=Max("number"))["last"] or 0) + 1
    dream = Dream(
        agent_id=agent.pk,
        number=number,
        store=store,
        output=None if is_copy else store,
        is_copy=is_copy,
        recorded=[each.pk for each in recorded],
        model=agent.model,
        key=key if isinstance(key := request_key.get(), AgentKey) else None,
        created_at=timezone.now(),
    )
    dream.instructions = Silo.for_agent(agent).seal_text(_seal(agent, dream), number, instructions)
    dream.save(force_insert=True)
    dreams.filter(number=number - KEPT).update(instructions=None)
    return dream


def _require_small(agent: Agent, store: int) -> None:
    if ledger.size(agent, store)[0] > MAX_TOKENS:
        raise errors.Invalid("inputs", f"has a memory store with more than {MAX_TOKENS:,} tokens, which is the maximum")


def instructions(agent: Agent, dreams: Sequence[Dream]) -> dict[int, str]:
    """What the client asks for in each of these dreams, by its number. It can be an empty text. It is left out if a
    redaction removed it, or if SQL changed the dream."""
    silo, found = Silo.for_agent(agent), {}
    for dream in dreams:
        if dream.instructions is not None:
            with suppress(errors.SealBroken):
                found[dream.number] = silo.open_text(_seal(agent, dream), dream.number, bytes(dream.instructions))
    return found


def _seal(agent: Agent, dream: Dream) -> str:
    """The name of the seal. A redaction changes it, because instructions may have the redacted content. A claim changes
    it, because an earlier holder of the key may have written them. It contains the request and the key that made the
    request, because SQL can change the row."""
    request = [dream.store, dream.output, dream.is_copy, dream.model, dream.recorded]
    key = dream.key.fingerprint if dream.key else ""
    return f"dream/{redactions.last(agent)}/{agent.claimed_at}/{key}/{json.dumps(request)}"


def cancel(agent: Agent, number: int) -> Dream:
    """End a dream. Its edits stay. Raises NotFound, DreamOver."""
    with edits.locked(agent) as row:
        dream = find(row, number)
        if dream.status == Dream.Status.RUNNING:
            session = RefinementSession.objects.get(agent_id=row.pk, number=dream.session or 0)
            sessions.end(row, session, Outcome.INCOMPLETE, sessions.CANCELED)
        elif dream.status == Dream.Status.PENDING:
            ended = {"status": Dream.Status.CANCELED, "ended_at": timezone.now()}
            Dream.objects.filter(pk=dream.pk, agent_id=row.pk).update(**ended)
        elif dream.status != Dream.Status.CANCELED:
            raise DreamOver
        return find(row, number)


def archive(agent: Agent, number: int) -> Dream:
    """Hide a dream that is over from lists. Raises NotFound, DreamRunning."""
    with edits.locked(agent) as row:
        dream = find(row, number)
        if dream.status in _OPEN:
            raise DreamRunning
        if dream.archived_at is None:
            Dream.objects.filter(pk=dream.pk, agent_id=row.pk).update(archived_at=timezone.now())
        return find(row, number)


# --- for a worker


def begin(agent: Agent) -> RefinementSession | None:
    """Open the session of the agent's waiting dream. The result is None if there is no such dream, or if another
    session of the agent is open. A dream that cannot begin has failed."""
    waiting = Dream.objects.filter(agent_id=agent.pk, status=Dream.Status.PENDING)
    dream = waiting.select_related("key__agent__tenant").first()
    if dream is None or RefinementSession.objects.filter(held(timezone.now()), agent=agent).exists():
        return None
    try:
        with new_request():
            request_key.set(dream.key)  # a revoked or suspended key begins nothing
            require_valid_key()
            while dream.is_copy and _copy_some(agent, dream):
                dream.refresh_from_db()
                time.sleep(edits.PAUSE)
            with edits.locked(agent, seconds=LOCK_SECONDS) as row:
                return _open(row, dream)
    except DomainError as failure:
        failed = {"status": Dream.Status.FAILED, "error": failure.code, "problem": str(failure)[:300]}
        pending = Dream.objects.filter(pk=dream.pk, agent_id=agent.pk, status=Dream.Status.PENDING)
        pending.update(ended_at=timezone.now(), **failed)
        return None


def _copy_some(agent: Agent, dream: Dream) -> bool:
    """Copy some memories to the new store. Return whether there may be more. After an interruption, the copy goes on
    where it was."""
    with edits.locked(agent, seconds=LOCK_SECONDS) as row:
        dream.refresh_from_db()
        if dream.status != Dream.Status.PENDING:
            return False
        words, output = _readable(row, dream), dream.output
        changed: dict[str, Any] = {}
        if output is None:
            about = stores.about(row, stores.find(row, dream.store))
            name = f"{about.name[: stores.MAX_NAME - 30]} (dream {dream.number})"
            about = stores.About(name, about.description, about.metadata)
            output = dream.output = changed["output"] = stores.create(row, about, _WORKER).number
            seal = _seal(row, dream)
            changed["instructions"] = Silo.for_agent(row).seal_text(seal, dream.number, words)
        last = stores.copy(row, dream.store, output, dream.copied, _WORKER)
        changed |= {} if last is None else {"copied": last}
        if changed:
            Dream.objects.filter(pk=dream.pk, agent_id=row.pk).update(**changed)
        return last is not None


def _open(agent: Agent, dream: Dream) -> RefinementSession | None:
    dream.refresh_from_db()
    if dream.status != Dream.Status.PENDING:
        return None
    output = dream.output or dream.store
    stores.find(agent, output)
    _require_small(agent, output)
    if agent.model != dream.model:
        raise errors.Invalid("model", "is no longer the agent's model")
    _readable(agent, dream)
    schedule.require_useful(agent, is_dream=True)  # a session that ran meanwhile may have changed nothing
    if agent.claimed_at is not None and dream.created_at <= agent.claimed_at:
        raise errors.Invalid("instructions", _EARLIER)
    session = sessions.open_session(agent, trigger=DueReason.AGENT, mode=Mode.STORE, store=output)
    values: Any = {"status": Dream.Status.RUNNING, "session": session.number}
    values["recorded_tokens"] = sum(tokens.count(text) for text in recordings(agent, dream))
    Dream.objects.filter(pk=dream.pk, agent_id=agent.pk).update(**values)
    return session


def _readable(agent: Agent, dream: Dream) -> str:
    """The instructions of a dream that begins. Raises Invalid."""
    found = instructions(agent, [dream]).get(dream.number)
    if found is None:
        raise errors.Invalid("instructions", _EARLIER)
    return found


_EARLIER = "were written before a claim or a redaction. Request the dream again"


def recordings(agent: Agent, dream: Dream) -> list[str]:
    """The recordings that the model gets, oldest first: the newest ones that have room in a part of a batch. Those that
    were discarded or may not be refined are left out."""
    rows = RecordedSession.objects.filter(agent_id=agent.pk, pk__in=dream.recorded)
    numbers = sorted({number for session in rows for number in session.numbers}, reverse=True)[:MOST_RECORDED]
    # SQL could put other numbers into the row of a recorded session.
    own = Memory.objects.of(agent).filter(category="user_interaction", is_instruction=False)
    kept = own.kept().exclude(category__in=ledger.left_out(agent))
    newest = kept.numbered(numbers).order_by("-number").fitting(MOST_RECORDED, RECORDED_BYTES)
    room, silo = ledger.batch_tokens(agent.context_tokens) // RECORDED_SHARE, Silo.for_agent(agent)
    fit = sum(total <= room for total in accumulate(memory.tokens for memory in newest))
    return [silo.open(memory).content for memory in reversed(newest[:fit])]
