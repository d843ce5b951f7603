"""Admin actions on agents, such as: refine now, pause, suspend keys, switch memory off, withdraw a proposal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.http import HttpRequest

from audit.models import Change
from config import PROGRAM
from config.queue import unattended
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import MAX_LISTED, AdminAction, Result
from memory.admin.base.permissions import actor_of
from memory.admin.removal import open_proposal
from memory.agents import lifecycle, rule_changes
from memory.consent import requests
from memory.errors import NotOpen
from memory.mail import letters, wording
from memory.models import Agent
from memory.time_machine import replay
from refinement import backlog, probe, schedule

MAX_VERIFIED = 60_000  # entries and changes; verifying them takes one or two seconds. Longer trails need the command
MAX_PROBLEMS = 5  # the message lists at most this many problems of an audit trail


def _agents(rows: Sequence[Agent]) -> str:
    return several(len(rows), "agent")


class RefineNow(AdminAction):
    name, label, needs = "refine_now", "Refine now", Action.STEER

    def is_offered(self, row: Agent) -> bool:
        return row.memory_enabled and bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        rows = self.changed(rows)
        problems = probe.problems(row.model for row in rows)
        ready = [row for row in rows if row.model not in problems]
        if ready:
            agents, tokens = several(len(ready), "agent"), sum(row.core_tokens for row in ready)
            yield f"Starts a refinement session for {agents}, with {tokens:,} core tokens in total."
            yield "A session may merge, rewrite and discard memories, except protected ones. You can roll it back."
        if paused := sum(row.paused for row in rows):
            yield f"{several(paused, 'agent is', 'agents are')} paused. The session starts anyway."
        for problem in set(problems.values()):
            yield f"A session cannot start: {problem} Propose another model, or ask the operator of the service."
        if why := unattended():
            yield f"The sessions do not start until a worker runs: {why}."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        backlog.request_for(row, actor_of(by))
        if later := unattended():
            return f"refinement requested. It does not start until a worker runs: {later}."
        return "refinement requested. The session appears in the list of sessions when a worker starts it."


class Pause(AdminAction):
    name, label, needs, is_paused = "pause", "Pause", Action.STEER, False

    def is_offered(self, row: Agent) -> bool:
        return row.paused == self.is_paused

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"Pauses {_agents(self.changed(rows))}. While an agent is paused, no refinement starts automatically."
        yield "Memories can still be stored and read."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        lifecycle.change(row, actor_of(by), paused=True)
        return "paused."


class Resume(Pause):
    name, label, is_paused = "resume", "Resume", True

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        due = sum(row.paused and bool(schedule.why(row)) for row in rows)
        yield f"Resumes {_agents(self.changed(rows))}. After that, refinement starts when it is due. Due now: {due:,}."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        lifecycle.change(row, actor_of(by), paused=False)
        if not schedule.due().filter(pk=row.pk).exists():
            return "no longer paused."
        backlog.add(row)
        return "no longer paused. A refinement is due and waits for a worker."


class SuspendKeys(AdminAction):
    name, label, needs, is_destructive = "suspend_keys", "Suspend keys", Action.CONFIGURE, True

    def is_offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key) and not (row.keys_suspended and row.keys_lifted_at is None)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"Suspends the keys of {_agents(self.changed(rows))}. All requests with these keys fail at once."
        yield "Only an owner can lift the suspension. After that, each agent needs a new key."
        yield from _ways_back(rows)

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        lifecycle.suspend_keys(row, actor_of(by))
        return "keys suspended."


class LiftSuspension(AdminAction):
    name, label, needs, is_destructive = "lift_suspension", "Lift suspension of keys", Action.REMOVE, True

    def is_offered(self, row: Agent) -> bool:
        return row.keys_suspended

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"Lets {_agents(self.changed(rows))} get a new key. The suspended keys still open no memories."
        yield "If you are an agent's steward yourself, you get no code. Let another owner lift the suspension."
        yield from _ways_back(rows)

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        lifecycle.lift_suspension(row, actor_of(by))
        return "the suspension is lifted."


def _ways_back(rows: Sequence[Agent]) -> Iterable[str]:
    yield from map(_way_back, rows[:MAX_LISTED])
    if len(rows) > MAX_LISTED:
        yield f"Select fewer agents to see how the other {len(rows) - MAX_LISTED} can get a new key."


def _way_back(row: Agent) -> str:
    """How the agent gets a new key after its keys were suspended, and what is lost otherwise."""
    way = "with its recovery code" if row.claimed_at else "by an exchange of one of its keys"
    if row.steward and letters.is_new_steward(row):
        way += f". Its steward, {row.steward}, gets no code: a key named them less than 72 hours before the suspension"
    elif row.steward and not letters.are_printed():
        way += f", or with a code that its steward, {row.steward}, receives by mail"
    return f"{row.label} can then get a new key {way}. Otherwise, nobody can ever use its memory again."


class SwitchOff(AdminAction):
    name, label, needs, is_on = "memory_off", "Switch memory off", Action.CONFIGURE, True

    def is_offered(self, row: Agent) -> bool:
        return row.memory_enabled == self.is_on and bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"Switches memory off for {_agents(self.changed(rows))}. While it is off, nothing can be stored or read."
        yield "Existing memories stay as they are and can be exported. Only a person can switch memory on again."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        rule_changes.change(row, actor_of(by), enabled=not self.is_on)
        return "memory is off." if self.is_on else "memory is on."


class SwitchOn(SwitchOff):
    name, label, is_on = "memory_on", "Switch memory on", False

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"Switches memory on for {_agents(self.changed(rows))}. {rule_changes.GOOD_FOR}"


class Verify(AdminAction):
    name, label, needs = "verify", "Verify audit trail", Action.SEE

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        entries = sum(row.audit_seq for row in rows)
        yield (
            f"Verifies {several(entries, 'entry', 'entries')} of {several(len(rows), 'audit trail')}, and compares "
            "memories and counters with the entries. This decrypts no content and changes nothing."
        )

    def run(self, page: Any, rows: Sequence[Agent], by: Any, values: dict[str, Any]) -> Iterator[Result]:
        room = MAX_VERIFIED
        for row in rows:
            size = row.audit_seq + Change.objects.filter(agent_id=row.pk).values("pk")[: MAX_VERIFIED + 1].count()
            if size <= room:
                room -= size
                yield _verified(row)
            else:
                why = f"the trail is too long to verify here. On the server, run: {PROGRAM} verify_audit {row.label}"
                yield Result(f"{row.label}: {why}", ok=False)


def _verified(row: Agent) -> Result:
    found = [problem for problem, _ in zip(replay.problems_of(row.pk), range(MAX_PROBLEMS), strict=False)]
    if not found:
        return Result(f"{row.label}: the audit trail is intact ({several(row.audit_seq, 'entry', 'entries')}).")
    problems = "; ".join(f"entry {each.seq}: {each.problem}" if each.seq else each.problem for each in found)
    return Result(f"{row.label}: the audit trail is broken. {problems}", ok=False)


class WithdrawProposal(AdminAction):
    """Withdraws the person's own open proposal."""

    name, label, needs = "withdraw_proposal", "Withdraw the proposal", Action.CONFIGURE

    def is_offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key) and open_proposal(row) is not None

    def may(self, page: Any, request: HttpRequest, row: Agent) -> bool:
        """Whether the person may withdraw the open proposal. Only its proposer may withdraw it."""
        proposal = open_proposal(row)
        is_others = proposal is not None and not requests.is_own(proposal, actor_of(request.user))
        return super().may(page, request, row) and not is_others

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        found = [(row, proposal) for row in rows if (proposal := requests.open_proposal(row))]
        yield f"Withdraws {several(len(found), 'proposal')}. Nobody can accept a withdrawn proposal."
        for row, proposal in found[:MAX_LISTED]:
            yield f"{row.label}: {'; '.join(wording.proposed(proposal.proposed))}."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        proposal = requests.open_proposal(row)
        if proposal is None:
            raise NotOpen("The agent has no open proposal.")
        requests.deny(row, proposal.number, actor_of(by))
        return f"proposal {proposal.number} withdrawn."
