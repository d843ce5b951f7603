"""Codes with which the agent's side gets a new key, even if it has no key any more.

A claim returns a recovery code, and the database has only its MAC. If an owner lifts the suspension of the keys, the
steward receives another code by mail. It is derived from the agent's row and the keyring's pepper, and is not stored.
"""

import re
import secrets

from django.utils import timezone

from audit.consent import LAPSES
from audit.trail import Actor
from config.keyring import is_proven, macs
from memory.errors import KeyRejected, KeySuspended
from memory.models import Agent

FORM = "palr_"
_CODE = re.compile(rf"{FORM}([1-9][0-9]{{0,17}})_([0-9a-f]{{64}})")
_WRONG = (
    "The key or recovery code is not valid. If the response to an exchange was lost, send the same request again, with "
    "the same Idempotency-Key."
)


def new_code(agent: Agent, seed: str = "") -> str:
    """Make a code. The caller saves the agent's row, which gets the code's MAC. With a `seed`, it is the first of
    `seeded_codes`."""
    code = seeded_codes(agent, seed or secrets.token_hex(32))[0]
    agent.recovery_mac = macs(_text(agent, code.rpartition("_")[2]))[0]
    return code


def seeded_codes(agent: Agent, seed: str) -> list[str]:
    """The recovery code of a claim with this secret seed, with each pepper of the keyring, newest first."""
    return [f"{FORM}{agent.pk}_{mac.hex()}" for mac in macs(f"recovery-code/{seed}")]


def steward_code(agent: Agent) -> str:
    """The steward's code. It is valid for 72 hours after the suspension of the keys was lifted, until the next claim,
    and while the steward stays the same."""
    return f"{FORM}{agent.pk}_{macs(_steward_text(agent))[0].hex()}"


def agent_of(code: str) -> Agent:
    """The agent of a code. Raises KeyRejected."""
    parts = _CODE.fullmatch(code)
    agent = Agent.objects.select_related("tenant").filter(pk=parts[1]).first() if parts else None
    if agent is None:
        raise KeyRejected(_WRONG)
    actor_of(agent, code)
    return agent


def actor_of(agent: Agent, code: str) -> Actor:
    """Who sends this code. Raises KeyRejected, or KeySuspended until an owner has lifted the suspension."""
    secret, lifted_at = code.rpartition("_")[2], agent.keys_lifted_at
    if is_proven(agent.recovery_mac, _text(agent, secret)):
        if agent.keys_suspended and lifted_at is None:
            raise KeySuspended
        return Actor.agent("recovery code")
    is_in_time = lifted_at is not None and lifted_at <= timezone.now() < lifted_at + LAPSES
    if agent.steward and is_in_time and is_proven(bytes.fromhex(secret), _steward_text(agent)):
        return Actor.steward(agent.steward)
    raise KeyRejected(_WRONG)


def _text(agent: Agent, secret: str) -> str:
    return f"recovery/{agent.pk}/{secret}"


def _steward_text(agent: Agent) -> str:
    return f"steward-recovery/{agent.pk}/{agent.keys_lifted_at}/{agent.steward}"
