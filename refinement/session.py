"""Opens and ends refinement sessions. A constraint of the database allows one open session for each agent.

Before a session opens or ends, the agent's row is locked, as in the write path. So a session never opens or ends while
the agent's memories change, and there are no deadlocks.
"""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from django.db import models, transaction
from django.db.models import BigIntegerField, F, Max, Sum, Value, Window
from django.db.models.functions import Random, RowNumber
from django.utils import timezone

from audit import redactions
from audit.models import Operation
from audit.trail import Actor
from config.queue import LOCK_SECONDS
from memory.errors import SealBroken, SiloKeyMissing
from memory.models import Agent, DueReason
from memory.policy import switches, tokens
from memory.policy.validation import MAX_CONTENT
from memory.silo.silo import Silo
from memory.writing import duplicates, edits, operations
from refinement import allowance, cost, ledger, limits, schedule
from refinement.errors import SessionOpen
from refinement.llm.base import Usage
from refinement.models import Dream, Driver, Mode, Outcome, RefinementSession, held
from refinement.notices import webhooks

log = structlog.get_logger("palimpsest.refinement")

INTERRUPTED = "interrupted"  # a reason: a person or a bug stopped it
CANCELED = "canceled"  # a reason: the agent's side canceled the dream

SYSTEM = Actor.system("refinement")
AT_ONCE, MOST_SECONDS = 500, 10.0  # sessions and seconds of a task that ends sessions; the next one continues


def open_session(
    agent: Agent,
    *,
    trigger: str,
    mode: str = Mode.FULL,
    driver: str = Driver.SERVER,
    store: int | None = None,
    found: Sequence[int] | None = None,
) -> RefinementSession:
    """Remove exact duplicates, and open a session with a lease. The session's model, target, floor and limits do not
    change after this. A session for a memory store removes no duplicates. If the agent is locked, `found` has the
    duplicates that were found before.

    If the agent has an open session with an expired lease, this old session is first closed as abandoned. Raises
    SessionOpen, MemoryDisabled, Erased, AllowanceSpent, and BackingOff if the agent's runtime requests it too soon.
    """
    started = time.perf_counter()
    if found is None:
        found = duplicates.find(agent) if store is None else ()
    with edits.locked(agent) as agent:
        edits.require_key(agent)
        switches.require_on(agent)
        _end_stale(agent)
        if driver == Driver.RUNTIME and trigger == DueReason.AGENT:
            schedule.require_useful(agent)
        before = copy(agent)
        number = (RefinementSession.objects.filter(agent=agent).aggregate(last=Max("number"))["last"] or 0) + 1
        removed = duplicates.remove(agent, found, session=number).memories if store is None else ()
        session = _new_session(before, agent, number, trigger, mode, driver, store)
        session.duplicates_removed = sum(m.discarded_at is not None for m in removed)
        session.own_microseconds = round((time.perf_counter() - started) * 1_000_000)
        session.save(force_insert=True)
        with edits.begin(agent, Operation.SESSION_OPENED, SYSTEM, session=number) as edit:
            edit.detail = {"mode": mode, "driver": driver, "trigger": trigger, "model": session.model}
            edit.detail |= {"tokens": session.tokens_before, "repeated_tokens": session.repeated_tokens}
            edit.detail |= {"target": session.target_tokens, "floor": session.floor_tokens}
            edit.detail |= {} if store is None else {"store": store}
            edit.finish(always=True)
        return session


def _new_session(
    before: Agent, agent: Agent, number: int, trigger: str, mode: str, driver: str, store: int | None
) -> RefinementSession:
    """The row of a new session. `before` is the state of the agent before the removal of exact duplicates. `agent` is
    its state after the removal."""
    now = timezone.now()
    figures: dict[str, Any]
    if store is None:
        figures = {
            "budget_tokens": agent.budget_tokens,
            "target_tokens": agent.target_tokens,
            "floor_tokens": limits.floor(agent.retention, agent.target_tokens, agent.high_water_tokens),
            "tokens_before": before.core_tokens,
            "tokens_after": agent.core_tokens,
            "memories_before": before.core_count,
            "memories_after": agent.core_count,
            "repeated_tokens": before.core_tokens - agent.core_tokens,
        }
    else:
        size, count = ledger.size(agent, store)
        uncut = size + _cut_of_store(agent, store, now)
        names = ("budget_tokens", "target_tokens", "tokens_before", "tokens_after")
        figures = dict.fromkeys(names, size) | {"floor_tokens": limits.floor(agent.retention, uncut, uncut)}
        figures |= {"memories_before": count, "memories_after": count}
    session = RefinementSession(
        agent=agent,
        number=number,
        mode=mode,
        driver=driver,
        trigger=trigger,
        store=store,
        model=agent.model,
        opened_at=now,
        lease_token=secrets.token_hex(16),
        **figures,
        **limits.of(agent, figures["memories_before"]),
    )
    session.renew_lease()
    if driver == Driver.SERVER:
        allowance.reserve(session, agent.tenant)
    return session


def _cut_of_store(agent: Agent, store: int, now: datetime) -> int:
    """The tokens that earlier sessions cut from a memory store, since limits.CUT_DAYS. They count for its floor, as if
    they were still there."""
    rows = RefinementSession.objects.filter(agent_id=agent.pk, store=store, opened_at__gt=now - limits.CUT_DAYS)
    rows = rows.filter(tokens_before__gt=F("tokens_after"))
    return int(rows.aggregate(cut=Sum(F("tokens_before") - F("tokens_after"), default=0))["cut"])


def preview(agent: Agent, mode: str = Mode.FULL) -> dict[str, Any]:
    """The dry run of a session: why the agent is due, its figures, its limits, and the size of its ledger, without
    content. It calls no model and changes nothing. Raises MemoryDisabled."""
    switches.require_on(agent)
    removable = {memory.number for memory in duplicates.removable(agent)}
    kept = [entry for entry in ledger.read(agent) if entry.memory.number not in removable]
    batches = ledger.batches(kept, agent.context_tokens)
    tokens_left = sum(entry.memory.tokens for entry in kept)
    usage = cost.expected(agent.model, tokens_left, len(kept), agent.target_tokens, agent.context_tokens)
    return {
        "mode": mode,
        "model": agent.model,
        "due": schedule.why(agent) or None,
        "tokens": agent.core_tokens,
        "target": agent.target_tokens,
        "budget": agent.budget_tokens,
        "floor": limits.floor(agent.retention, agent.target_tokens, agent.high_water_tokens),
        "memories": agent.core_count,
        "constitutional": agent.constitutional_count,
        "duplicates": len(removable),
        "batches": len(batches),
        "ledger_tokens": sum(tokens.count(ledger.text(batch)) for batch in batches),
        "expected_prompt_tokens": usage.prompt,
        "expected_completion_tokens": usage.completion,
        "expected_price": cost.price(agent.model, usage),
        **limits.of(agent),
    }


def row_of(session: RefinementSession) -> models.QuerySet[RefinementSession]:
    """A query for the session's row. The query names the agent too, because rows may be sharded
    (docs/internals/scaling.md)."""
    return RefinementSession.objects.filter(pk=session.pk, agent_id=session.agent_id)


_COST = ("model_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "model_milliseconds")


def count_model_calls(session: RefinementSession, usage: Usage, calls: int, milliseconds: int) -> None:
    """Add the cost of one request. `calls` includes retries and failed calls. The counts are the model server's. If the
    session ended during the request, the tokens count for the tenant now."""
    counts = zip(_COST, (calls, usage.prompt, usage.cached, usage.completion, milliseconds), strict=True)
    added = {name: F(name) + Value(number, BigIntegerField()) for name, number in counts}
    with transaction.atomic():
        row_of(session).update(**added)
        if row_of(session).filter(closed_at__isnull=False).exists():
            allowance.add(session.agent.tenant_id, session.model, usage.charged, timezone.now())


def close(
    session: RefinementSession, outcome: str, reason: str = "", words: str = "", problem: str = ""
) -> RefinementSession:
    """End a session. The same transaction writes the session's figures, an audit entry, a notice to the agent, and the
    agent's next due date.

    `words` is a text that the agent's model wrote, for example a summary. `problem` is the reason in words, without
    content. If the session has already ended, or another
    worker has its lease, nothing changes.
    """
    with edits.locked(session.agent) as agent:
        row = row_of(session).get()
        if (row.outcome, row.lease_token) == (Outcome.OPEN, session.lease_token):
            row.problem = problem[:300]
            end(agent, row, outcome, reason, words)
        return row


def end_open(*, agent: Agent, why: str = "", **_: Any) -> None:
    """End the agent's open session, because of a claim or a removal. For a removal, `why` is its reason. The summaries
    that the model wrote are then deleted, because they may repeat the removed content.

    This receives the signals `claiming` and `removing`. The agent's row is locked.
    """
    for row in RefinementSession.objects.filter(agent=agent, outcome=Outcome.OPEN):
        row.summaries = None if why else row.summaries
        end(agent, row, Outcome.INCOMPLETE, why or "claim")
    dreams = Dream.objects.filter(agent_id=agent.pk)
    ended = {"status": Dream.Status.FAILED, "error": why or "claim", "ended_at": timezone.now()}
    dreams.filter(status=Dream.Status.PENDING).update(**ended)
    # They may have the removed content, or are from an earlier holder of the key.
    dreams.filter(instructions__isnull=False).update(instructions=None)


def close_stale() -> list[RefinementSession]:
    """End open sessions whose lease has expired, for MOST_SECONDS. Tenants take turns. The outcome is `abandoned`. The
    edits stay."""
    ended: list[RefinementSession] = []
    until = time.monotonic() + MOST_SECONDS
    turn = Window(RowNumber(), partition_by=F("agent__tenant_id"), order_by="pk")
    stale = RefinementSession.objects.filter(~held(timezone.now()), outcome=Outcome.OPEN).annotate(turn=turn)
    stale = stale.select_related("agent__tenant").defer("shown", "pending", "plan", "summaries")
    for session in stale.order_by("turn", Random())[:AT_ONCE]:  # those that cannot be ended do not block others
        try:
            with edits.locked(session.agent, seconds=LOCK_SECONDS) as agent:
                ended += _end_stale(agent)
        except SessionOpen:
            pass  # its lease was renewed, or another session has opened
        except Exception as failure:  # a fault of one agent must not affect the others
            log.error("stale session not closed", agent=session.agent_id, session=session.number, exc_info=failure)
        if time.monotonic() > until:
            break
    return ended


def end_lapsed(agent: Agent) -> None:
    """End the agent's open session if the session's lease has expired. The outcome is `abandoned`."""
    with suppress(SessionOpen), edits.locked(agent) as row:
        _end_stale(row)


def _end_stale(agent: Agent) -> list[RefinementSession]:
    """End the agent's open session if the session's lease has expired. Raises SessionOpen if the lease is still
    valid."""
    row = RefinementSession.objects.filter(agent=agent, outcome=Outcome.OPEN).first()
    if row is None:
        return []
    if row.is_held():
        ends = f"Without another call, it ends at {row.lease_until:%H:%M:%S} UTC"
        raise SessionOpen(f"Refinement session {row.number} of this agent is open. {ends}.")
    end(agent, row, Outcome.ABANDONED, schedule.LEASE_EXPIRED)
    return [row]


def end(agent: Agent, row: RefinementSession, outcome: str, reason: str = "", words: str = "") -> None:
    """End an open session in the same way as `close`. The caller has locked the agent's row. `row` is the session's
    current row. A session that reaches a limit after edits is completed."""
    row.refresh_from_db(fields=_COST, from_queryset=row_of(row).select_for_update())  # a call may have ended meanwhile
    is_limit = outcome == Outcome.INCOMPLETE and (reason == "floor" or reason.startswith("limit_"))
    row.outcome, row.reason = Outcome.COMPLETED if is_limit and row.changes else outcome, reason
    row.tokens_after, row.memories_after = ledger.size(agent, row.store)
    row.closed_at = timezone.now()
    summaries = [*read_summaries(agent, row), words] if words else read_summaries(agent, row)
    row.shown, row.pending, row.plan, row.summaries = {}, {}, [], None
    row.save()
    is_told = row.duplicates_removed and row.reason != schedule.NOT_CONFIGURED  # such an error is the operator's
    has_changed = row.changes or row.protected or row.promoted or is_told
    text = notice(row, " ".join(summaries)) if has_changed or row.outcome == Outcome.COMPLETED else ""
    with edits.begin(agent, Operation.SESSION_CLOSED, SYSTEM, session=row.number, is_notice=True) as edit:
        edit.detail = figures(row)
        with suppress(SealBroken, SiloKeyMissing):  # without a silo there is no notice, but the session still ends
            if text:
                edit.add(operations.notice(text), Silo.for_agent(agent))
        edit.finish(always=True)
    row.agent = agent
    if has_failed(row):
        webhooks.add_failed(row)
    allowance.count(row)
    if row.store is None:
        schedule.set_next(agent, row)
    else:
        _end_dream(row)
    transaction.on_commit(partial(_log_closed, row))


def _end_dream(row: RefinementSession) -> None:
    is_done = row.outcome in (Outcome.COMPLETED, Outcome.DECLINED)
    values: dict[str, Any] = {"status": Dream.Status.COMPLETED if is_done else Dream.Status.FAILED}
    if row.reason == CANCELED:
        values["status"] = Dream.Status.CANCELED
    elif not is_done:
        values |= {"error": row.reason or row.outcome, "problem": row.problem}
    running = Dream.objects.filter(agent_id=row.agent_id, session=row.number, status=Dream.Status.RUNNING)
    running.update(ended_at=row.closed_at, **values)


def has_failed(row: RefinementSession) -> bool:
    return row.outcome in (Outcome.FAILED, Outcome.ABANDONED) and row.reason != INTERRUPTED


def _log_closed(row: RefinementSession) -> None:
    write = log.warning if has_failed(row) else log.info
    write("refinement session closed", agent=row.agent_id, session=row.number, outcome=row.outcome, reason=row.reason)


def figures(session: RefinementSession) -> dict[str, Any]:
    """The session's figures, for the trail."""
    names: tuple[str, ...] = ("outcome", "reason", "tokens_before", "tokens_after", "memories_before", "memories_after")
    counts: tuple[str, ...] = ("repeated_tokens", "duplicates_removed", "merged", "updated", "deleted")
    counts += ("demoted", "protected", "promoted", "left_out")
    return {name: getattr(session, name) for name in names + counts}


def notice(session: RefinementSession, words: str) -> str:
    """The text of the notice about an ended session. The service computes the numbers. They do not come from the
    model's text."""
    ending = _ENDINGS[Outcome(session.outcome)]
    if session.reason and session.outcome == Outcome.COMPLETED:
        ending = "Refinement completed at a limit ({reason})."
    ending = ending.format(reason=session.reason.replace("_", " "))
    what = "core memories" if session.store is None else f"memories of memory store {session.store}"
    saved = session.tokens_before - session.tokens_after
    weight = f"saved {saved:,} tokens" if saved >= 0 else f"grew by {-saved:,} tokens"
    counted = (
        f"{ending} Compressed {session.memories_before:,} → {session.memories_after:,} {what}; "
        f"{weight}; merged {session.merged:,}, rewrote {session.updated:,}, deleted {session.deleted:,}, "
        f"demoted {session.demoted:,}, promoted {session.promoted:,}; protected {session.protected:,}; "
        f"exact duplicates removed {session.duplicates_removed:,}."
    )
    if session.left_out:
        counted += f" Details reported as left out of core memory: {session.left_out:,}. Search still finds them."
    text = f'{counted} In your own words: "{words}"' if words else counted
    return text if len(text) <= MAX_CONTENT else f"{text[: MAX_CONTENT - 1]}…"


_ENDINGS = {
    Outcome.COMPLETED: "Refinement completed.",
    Outcome.DECLINED: "Refinement declined.",
    Outcome.INCOMPLETE: "Refinement ended early ({reason}).",
    Outcome.FAILED: "Refinement failed ({reason}).",
    Outcome.ABANDONED: "Refinement was abandoned ({reason}).",
}


def read_summaries(agent: Agent, session: RefinementSession) -> list[str]:
    """The agent's summaries of the batches so far."""
    if session.summaries is None:
        return []
    try:
        return Silo.for_agent(agent).open_text(_summary(agent), session.number, bytes(session.summaries)).split("\n")
    except (SealBroken, SiloKeyMissing):  # the session must still close
        return ["(The earlier summaries cannot be decrypted.)"]


def add_summary(agent: Agent, session: RefinementSession, words: str) -> None:
    text = "\n".join([*read_summaries(agent, session), " ".join(words.split())])[:MAX_CONTENT]  # a notice shows no more
    session.summaries = Silo.for_agent(agent).seal_text(_summary(agent), session.number, text)


def _summary(agent: Agent) -> str:
    """The name of the seal of summaries. A redaction changes it, because they may have the redacted content."""
    return f"summary/{redactions.last(agent)}"
