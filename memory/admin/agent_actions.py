"""What people do to agents: refine, pause, verify, switch memory on and off, withdraw a proposal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.http import HttpRequest

from config.queue import unattended
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import LISTED, AdminAction, Result
from memory.admin.base.page import actor_of
from memory.agents import lifecycle, rule_changes
from memory.consent import proposals
from memory.errors import NotOpen
from memory.mail import wording
from memory.models import Agent
from memory.time_machine import replay
from refinement import backlog, schedule

VERIFIED_AT_ONCE = 20_000  # entries, about a second's; more of them are for the command
PROBLEMS = 5  # of a trail that are told


class RefineNow(AdminAction):
    name, label, needs = "refine_now", "Refine now", Action.STEER

    def is_offered(self, row: Agent) -> bool:
        return row.memory_enabled and bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        tokens = sum(row.core_tokens for row in rows)
        yield (
            f"A worker has {several(len(rows), 'agent')} refine their own core memory, {tokens:,} tokens in all, "
            "one session each."
        )
        yield "Each may merge, rewrite and discard; protected memories stay, and every session can be rolled back."
        if paused := sum(row.paused for row in rows):
            yield f"{several(paused, 'agent is', 'agents are')} paused, and refined once all the same."
        if why := unattended():
            yield f"It waits until a worker runs: {why}."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        backlog.request_for(row, actor_of(by))
        later = unattended()
        if later:
            return f"it is refined once a worker runs: {later}."
        return "a worker refines it next; its session is listed once it has begun."


class Pause(AdminAction):
    name, label, needs = "pause", "Pause", Action.STEER

    def is_offered(self, row: Agent) -> bool:
        return not row.paused

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} no longer refined when due. What they remember and recall goes on."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        lifecycle.change(row, actor_of(by), paused=True)
        return "paused."


class Resume(AdminAction):
    name, label, needs = "resume", "Resume", Action.STEER

    def is_offered(self, row: Agent) -> bool:
        return row.paused

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        due = sum(row.paused and bool(schedule.why(row)) for row in rows)
        yield f"{several(len(rows), 'agent')} refined again when due, which {due:,} {'is' if due == 1 else 'are'} now."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        lifecycle.change(row, actor_of(by), paused=False)
        if not schedule.due().filter(pk=row.pk).exists():
            return "no longer paused."
        backlog.add(row)
        return "no longer paused, and due: a worker refines it next."


class SwitchOff(AdminAction):
    name, label, needs = "memory_off", "Switch memory off", Action.CONFIGURE

    def is_offered(self, row: Agent) -> bool:
        return row.memory_enabled and bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} neither remember nor recall anything, until a person switches memory on."
        yield "What they remember stays as it is, and can be exported. Only a person switches memory on again."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        rule_changes.change(row, actor_of(by), enabled=False)
        return "memory is off."


class SwitchOn(AdminAction):
    name, label, needs = "memory_on", "Switch memory on", Action.CONFIGURE

    def is_offered(self, row: Agent) -> bool:
        return not row.memory_enabled and bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} remember and recall again. {rule_changes.GOOD_FOR}"

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        rule_changes.change(row, actor_of(by), enabled=True)
        return "memory is on."


class Verify(AdminAction):
    name, label, needs = "verify", "Verify audit trail", Action.SEE

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        entries = sum(row.audit_seq for row in rows)
        yield (
            f"{several(entries, 'entry', 'entries')} of {several(len(rows), 'trail')} are checked, each against the "
            "one before it, and the memories and counters against them. No content is opened, nothing is changed."
        )

    def run(self, page: Any, rows: Sequence[Agent], by: Any, given: dict[str, Any]) -> Iterator[Result]:
        room = VERIFIED_AT_ONCE
        for row in rows:
            if row.audit_seq <= room:
                room -= row.audit_seq
                yield _verified(row)
            else:
                why = f"not verified here, because it takes long. On the server: manage.py verify_audit {row.label}"
                yield Result(f"{row.label}: {why}", ok=False)


def _verified(row: Agent) -> Result:
    found = [problem for problem, _ in zip(replay.problems_of(row.pk), range(PROBLEMS), strict=False)]
    if not found:
        return Result(f"{row.label}: the trail is whole, all {several(row.audit_seq, 'entry', 'entries')} of it.")
    told = "; ".join(f"entry {problem.seq}: {problem.problem}" if problem.seq else problem.problem for problem in found)
    return Result(f"{row.label}: the trail is broken. {told}", ok=False)


class WithdrawProposal(AdminAction):
    """Takes back one's own proposal, before the agent's side decides."""

    name, label, needs = "withdraw_proposal", "Withdraw the proposal", Action.CONFIGURE

    def is_offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key) and proposals.open_one(row) is not None

    def may(self, page: Any, request: HttpRequest, row: Agent) -> bool:
        """One's own alone: another person's is theirs to withdraw, and the agent's side's to decline."""
        proposal = proposals.open_one(row)
        is_others = proposal is not None and not proposals.is_own(proposal, actor_of(request.user))
        return super().may(page, request, row) and not is_others

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        found = [(row, proposal) for row in rows if (proposal := proposals.open_one(row))]
        yield f"{several(len(found), 'proposal')} withdrawn. No link accepts what was proposed any more, nor a runtime."
        for row, proposal in found[:LISTED]:
            yield f"{row.label}: {'; '.join(wording.proposed(proposal.proposed))}."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        proposal = proposals.open_one(row)
        if proposal is None:
            raise NotOpen("There is no open proposal any more.")
        proposals.decline(row, proposal.number, actor_of(by))
        return f"proposal {proposal.number} is withdrawn."
