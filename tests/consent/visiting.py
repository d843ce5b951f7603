"""A steward at the page behind a link."""

from __future__ import annotations

from typing import Any

from django.test import Client

from audit.models import AuditEntry
from memory.consent import links
from memory.models import Agent
from tests.conftest import drop_guards
from tests.privacy.marker import MARKER
from tests.steps import fresh, state

STEW = "stew@acme.test"


def address_of(agent: Agent, number: int) -> str:
    return f"/consent/{links.make(fresh(agent), number)}"


def press(client: Client, address: str, decision: str) -> Any:
    return client.post(address, {"decision": decision})


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    shown = answer.content.decode()
    assert MARKER not in shown
    return shown


def buttons(shown: str) -> list[str]:
    return [each for each in ("Approve", "Delete permanently", "Deny", "Revoke") if f">{each}</button>" in shown]


def refused_over_an_altered_trail(client: Client, agent: Agent, number: int, decision: str) -> str:
    """The page that says why nothing is decided where SQL altered the entry that asked."""
    address = address_of(agent, number)
    drop_guards()
    AuditEntry.objects.filter(agent_id=agent.pk, seq=number).update(actor_label="other@else.test")
    assert "refused" not in page(client, address)
    before = state(agent)
    answer = press(client, address, decision)
    shown: str = answer.content.decode()
    assert (answer.status_code, MARKER in shown, state(agent)) == (409, False, before)
    assert "Your decision was not saved." in shown
    assert "audit trail was altered after this" in shown
    return shown
