"""Common steps of tests: edits and reads, with the product's own functions."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from audit import verify
from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory.access import authority
from memory.agents import rule_changes
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Opened, Silo
from memory.time_machine import replay
from memory.transfer import exporting
from memory.transfer.export_formats import writer
from memory.writing import operations
from memory.writing.edits import snapshot as snapshot

ME = Actor.agent("runtime")
PERSON = Actor.person("pat@acme.test")
SYSTEM = Actor.system("tests")
SESSION = 1


def remember(agent: Agent, *texts: str, **values: Any) -> list[int]:
    """Store these texts in one entry. Return their numbers."""
    return [m.number for m in operations.remember(agent, [Draft(text, **values) for text in texts], ME).memories]


def row(agent: Agent, number: int) -> Memory:
    return Memory.objects.get(agent_id=agent.pk, number=number)


def says(agent: Agent, number: int) -> Opened:
    """The decrypted memory."""
    return Silo.for_agent(fresh(agent)).open(row(agent, number))


def fresh(agent: Agent) -> Agent:
    """The agent as the database has it now."""
    return Agent.objects.select_related("tenant").get(pk=agent.pk)


def active(agent: Agent) -> list[int]:
    """The numbers of the memories in core and in the journal."""
    rows = Memory.objects.of(agent).active().order_by("number")
    return list(rows.values_list("number", flat=True))


def entries(agent: Agent) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq"))


def last_entry(agent: Agent) -> AuditEntry:
    return AuditEntry.objects.filter(agent_id=agent.pk).latest("seq")


def changes(agent: Agent, seq: int) -> list[Change]:
    return list(Change.objects.filter(agent_id=agent.pk, seq=seq).order_by("number"))


def problems(agent: Agent) -> list[verify.Problem]:
    return list(replay.problems(fresh(agent)))


def state(agent: Agent) -> dict[str, Any]:
    """The columns of the agent and of its memories, and the numbers of its entries."""
    return {
        "agent": Agent.objects.filter(pk=agent.pk).values().get(),
        "memories": list(Memory.objects.filter(agent_id=agent.pk).order_by("number").values()),
        "entries": list(AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq").values_list("seq", flat=True)),
    }


@contextmanager
def refused(agent: Agent, error: type[Exception]) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block must raise `error` and change nothing of the agent, its memories and its trail."""
    before = state(agent)
    with pytest.raises(error) as caught:
        yield caught
    assert state(agent) == before


def protect(agent: Agent, *numbers: int) -> None:
    operations.protect(agent, numbers, PERSON)


def exported(agent: Agent, *, with_discarded: bool = False) -> list[str]:
    """The memories as lines of JSON."""
    with closing(exporting.memories(agent, with_discarded=with_discarded)) as found:
        written = writer("jsonl", with_discarded=with_discarded)(agent, found, exporting.Losses())
        return [line.decode() for line in written]


def tell(agent: Agent, text: str = "told") -> int:
    """Store a notice of the system. Return its number."""
    return operations.notify(agent, text, operation="session_closed", actor=SYSTEM, detail={}).memory.number


def set_rule(agent: Agent, actor: Actor, path: str, text: str) -> Agent:
    """Set one key of the rules from a text, as the command line does, and agree to it if it is a switch."""
    return rule_changes.make(agent, actor, rule_changes.Wanted(key=path, value=text), agreed=(path,)).agent


def signed_update(agents: QuerySet[Agent], **values: Any) -> None:
    """Update the rows of these agents, and sign them as the service does."""
    pks = list(agents.values_list("pk", flat=True))
    agents.update(**values)
    for agent in Agent.objects.filter(pk__in=pks):
        authority.sign(agent)
        agent.save(update_fields=authority.SIGNATURE)


def wait_for_a_lock() -> None:
    """Until another connection to this database waits for a row."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    for _ in range(200):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction would see the same state again
            cursor.execute(waiting)
            if cursor.fetchone():
                return
        time.sleep(0.05)
    raise AssertionError("no connection waits for a lock")
