"""The background tasks of this app. They send letters, write signed heads, and import memories."""

from config.queue import ASK_STEWARD, CONFIRM_DECISION, TELL_STEWARD, task
from memory.access import heads
from memory.mail import letters, link_letters
from memory.transfer import import_jobs


@task
def tell_steward(agent_id: int, seq: int, whose: int, tried: int = 0) -> str:
    """Send the steward a letter about a change. `whose` is BEFORE or AFTER. With another number, SQL could choose any
    former steward."""
    if whose not in (letters.BEFORE, letters.AFTER):
        return "no_steward"
    return letters.post(letters.send, TELL_STEWARD, agent_id, seq, whose, tried=tried)


@task
def ask_steward(agent_id: int, seq: int, tried: int = 0) -> str:
    """Send the steward a consent link. Each attempt creates a new link, so no token is stored."""
    return letters.post(link_letters.send, ASK_STEWARD, agent_id, seq, tried=tried)


@task
def confirm_decision(agent_id: int, number: int, tried: int = 0) -> str:
    """Send the steward a confirmation of their decision about a request."""
    return letters.post(link_letters.confirm, CONFIRM_DECISION, agent_id, number, tried=tried)


@task
def write_heads() -> str:
    """Write the signed heads of all trails to VAR_DIR."""
    heads.write()
    return "written"


@task
def import_memories(agent_id: int, number: int) -> str:
    """Carry out an import job of the agent."""
    return import_jobs.carry_out(agent_id, number)
