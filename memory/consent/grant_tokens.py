"""A grant's token: by it a command reads what the grant covers, as whoever was granted it.

Worked out from the grant and the keyring's pepper, and stored nowhere. It is good for exactly as long as the grant is,
and each read by it is checked and recorded as any other (`memory.consent.granted_reads`).
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

_FORM = re.compile(r"palg_([1-9][0-9]{0,17})_([1-9][0-9]{0,17})_([0-9a-f]{64})")


def make(agent: Agent, number: int, person: Person) -> str:
    """The token, for the page of whoever holds the grant. Raises NotGranted, Erased."""
    with grants.over_stays_over(agent), edits.locked(agent) as row:
        grants.in_force(row, number, person)
        return f"palg_{row.pk}_{number}_{macs(_text(row.pk, number, person))[0].hex()}"


def proven(agent: Agent, token: str) -> tuple[Standing, Person]:
    """The grant that a token proves, in force just now, and who reads by it.

    Raises KeyRejected, whatever is wrong; Erased.
    """
    rejected = KeyRejected("The token is not one of a grant of this agent that is in force.")
    standing, person = _proven(agent, token)
    if standing is None or not _may_read(agent, person):
        raise rejected
    try:
        with grants.over_stays_over(agent), edits.locked(agent) as row:
            return grants.in_force(row, standing.number, person), person
    except NotGranted:
        raise rejected from None


def _proven(agent: Agent, token: str) -> tuple[Standing | None, Person]:
    """None unless the token's MAC is right, under any pepper: a new one does not end the tokens that are out."""
    form = _FORM.fullmatch(token)
    agent_id, number, given = (int(form[1]), int(form[2]), form[3]) if form else (0, 0, "")
    standing = standings(agent.pk, number).get(number) if agent_id == agent.pk else None
    person = Person(standing.person_id, standing.person) if standing else Person(0, "")
    is_right = is_proven(bytes.fromhex(given), _text(agent.pk, number, person))
    return standing if is_right else None, person


def _may_read(agent: Agent, person: Person) -> bool:
    """Whether the person still is who asked, and has a part in the agent's tenant."""
    account = Account.objects.filter(pk=person.id, email=person.address).first()
    return account is not None and may(account, Action.ASK, agent.tenant)


def _text(agent_id: int, number: int, person: Person) -> str:
    return f"grant-token/{agent_id}/{number}/{person.id}/{person.address}"
