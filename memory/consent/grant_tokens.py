"""Tokens for commands that read content under a grant. A command with a token reads in the name of the grant's person.

A token is derived from the grant and the keyring's pepper, and is not stored. It is valid while the grant is active. A
read with a token is checked and recorded like every other read (`memory.consent.granted_reads`).
"""

from __future__ import annotations

import re

from audit.consent import Person, Standing, standings
from memory.access.authentication import is_proven, macs
from memory.access.roles import Action, may
from memory.consent import grants
from memory.errors import KeyRejected, NotGranted
from memory.models import Agent
from memory.models import Person as Account
from memory.writing import edits

_FORMAT = re.compile(r"palg_([1-9][0-9]{0,17})_([1-9][0-9]{0,17})_([0-9a-f]{64})")


def make(agent: Agent, number: int, person: Person) -> str:
    """The token of an active grant. Raises NotGranted, Erased."""
    with grants.record_expiry(agent), edits.locked(agent) as row:
        grants.in_force(row, number, person)
        return f"palg_{row.pk}_{number}_{macs(_text(row.pk, number, person))[0].hex()}"


def proven(agent: Agent, token: str) -> tuple[Standing, Person]:
    """The active grant of a token, and the grant's person. Raises Erased, or KeyRejected for every other problem."""
    rejected = KeyRejected("The token does not belong to an active grant for this agent.")
    standing, person = _proven(agent, token)
    if standing is None or not _may_read(agent, person):
        raise rejected
    try:
        with grants.record_expiry(agent), edits.locked(agent) as row:
            return grants.in_force(row, standing.number, person), person
    except NotGranted:
        raise rejected from None


def _proven(agent: Agent, token: str) -> tuple[Standing | None, Person]:
    """The grant and the person of a token. The grant is None if no pepper of the keyring gives the same MAC."""
    parts = _FORMAT.fullmatch(token)
    agent_id, number, mac = (int(parts[1]), int(parts[2]), parts[3]) if parts else (0, 0, "")
    standing = standings(agent.pk, number).get(number) if agent_id == agent.pk else None
    person = Person(standing.person_id, standing.person) if standing else Person(0, "")
    is_right = is_proven(bytes.fromhex(mac), _text(agent.pk, number, person))
    return standing if is_right else None, person


def _may_read(agent: Agent, person: Person) -> bool:
    """Whether the account still has this address, and may ask to read in the agent's tenant."""
    account = Account.objects.filter(pk=person.id, email=person.address).first()
    return account is not None and may(account, Action.ASK, agent.tenant)


def _text(agent_id: int, number: int, person: Person) -> str:
    return f"grant-token/{agent_id}/{number}/{person.id}/{person.address}"
