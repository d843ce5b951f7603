"""Requests and grants to read an agent's memories, and the pages of a grant."""

import re
from typing import Any

from django.test import Client

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.models import AuditEntry
from audit.trail import Actor
from memory.admin.plain_pages.reading import grant_url
from memory.consent import approval, requests
from memory.models import Agent, Person
from tests.admin.actions import html
from tests.steps import ME, fresh

SILO = Scope("silo")
PURPOSE = "to see why it forgot the customer"
HEADERS = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}


def asking(person: Person) -> Asking:
    return Asking(person.pk, person.email)


def asked(agent: Agent, person: Person, scope: Scope = SILO, seconds: int = 3_600) -> int:
    """The number of a new request for access."""
    return requests.ask_to_read(fresh(agent), asking(person), purpose=PURPOSE, scope=scope, seconds=seconds).number


def granted(agent: Agent, person: Person, scope: Scope = SILO, seconds: int = 3_600, by: Actor = ME) -> int:
    """The number of a new grant."""
    number = asked(agent, person, scope, seconds)
    approval.approve(fresh(agent), number, by)
    return number


def at(agent: Agent, number: int, *action: str) -> str:
    """The address of the grant's page, or of an action below it."""
    return grant_url(agent.label, number) + "".join(f"{each}/" for each in action)


def read(client: Client, agent: Agent, number: int, *numbers: int) -> Any:
    return client.post(at(agent, number, "memories"), {"numbers": ",".join(map(str, numbers))})


def read_entry(client: Client, agent: Agent, number: int, seq: int, **more: str) -> Any:
    return client.post(at(agent, number, "entry"), {"seq": str(seq)} | more)


def reads(agent: Agent) -> list[dict[str, Any]]:
    """The details of the trail's entries about reads."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation="content_read").order_by("seq")
    return [entry.detail for entry in entries]


def page_of(response: Any) -> str:
    """The page. Checks that it is not cached, not framed, and runs only the service's own files."""
    policy = response.headers["Content-Security-Policy"] + ";"
    for directive in ("script-src 'self';", "style-src 'self';", "default-src 'none'", "frame-ancestors 'none'"):
        assert directive in policy
    assert "unsafe" not in policy
    assert "no-store" in response.headers["Cache-Control"]
    assert response.headers["Referrer-Policy"] in ("no-referrer", "same-origin")
    assert {name: response.headers[name] for name in HEADERS} == HEADERS
    page = html(response)
    assert not re.search(r"<script(?! src=\"/static/)|<style|\son\w+=|style=", re.sub(r"(?s)<main>.*</main>", "", page))
    return page
