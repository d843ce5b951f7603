"""The background tasks of this app. They send letters, write signed heads, and import memories."""

from functools import partial

from config.queue import task
from memory.access import heads
from memory.mail import letters, link_letters, outbox
from memory.models import LetterKind
from memory.transfer import import_jobs


@task
def send_letters(tenant_id: int, turn: int) -> str:
    """Send a few letters of a tenant to stewards. `turn` is the number of this task for the tenant."""
    return outbox.send(tenant_id, turn, _POSTS)


_POSTS: outbox.Posts = {
    LetterKind.BEFORE: partial(letters.send, whose=letters.BEFORE),
    LetterKind.AFTER: partial(letters.send, whose=letters.AFTER),
    LetterKind.LINK: link_letters.send,  # each attempt makes a new link, so no token is stored
    LetterKind.DECISION: link_letters.confirm,
}


@task
def write_heads() -> str:
    """Write the signed heads of all trails to VAR_DIR."""
    heads.write()
    return "written"


@task
def import_memories(agent_id: int, number: int) -> str:
    """Carry out an import job of the agent."""
    return import_jobs.carry_out(agent_id, number)
