"""A grant, made by the product's own verbs, and its pages as a browser asks for them."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.models import AuditEntry
from audit.trail import Actor
from memory.admin.plain_pages.reading import grant_url
from memory.consent import grants
from memory.models import Agent, Person
from tests.steps import ME, fresh

SILO = Scope("silo")
PURPOSE = "to see why it forgot the customer"
HEADERS = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}


def asking(person: Person) -> Asking:
    return Asking(person.pk, person.email)


def asked(agent: Agent, person: Person, scope: Scope = SILO, seconds: int = 3_600) -> int:
    return grants.ask(fresh(agent), asking(person), purpose=PURPOSE, scope=scope, seconds=seconds).number


def granted(agent: Agent, person: Person, scope: Scope = SILO, seconds: int = 3_600, by: Actor = ME) -> int:
    number = asked(agent, person, scope, seconds)
    grants.approve(fresh(agent), number, by)
    return number


def at(agent: Agent, number: int, *deed: str) -> str:
    return grant_url(agent.label, number) + "".join(f"{each}/" for each in deed)


def read(client: Client, agent: Agent, number: int, *numbers: int) -> Any:
    return client.post(at(agent, number, "memories"), {"numbers": ",".join(map(str, numbers))})


def read_entry(client: Client, agent: Agent, number: int, seq: int, **more: str) -> Any:
    return client.post(at(agent, number, "entry"), {"seq": str(seq)} | more)


def reads(agent: Agent) -> list[dict[str, Any]]:
    """What the agent's trail says was read."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation="content_read").order_by("seq")
    return [entry.detail for entry in entries]


def page_of(answer: Any) -> str:
    """An answer as such a page must be, whatever it says: kept by nobody, running nothing but the service's files."""
    assert "no-store" in answer.headers["Cache-Control"]
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in f"{policy};"
    assert "style-src 'self';" in f"{policy};"
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] in ("no-referrer", "same-origin")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    page: str = answer.content.decode()
    assert not re.search(r"<script(?! src=\"/static/)|<style|\son\w+=|style=", re.sub(r"(?s)<main>.*</main>", "", page))
    return page
