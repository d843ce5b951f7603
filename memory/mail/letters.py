"""Mail to an agent's steward about changes its side has to know of (20-silo, The agent's side); which mail addresses
may decide something; and the sending of letters, which is tried again a bounded number of times.

A letter is asked for by the numbers of the agent and of the trail's entry, and written out of that entry when it is
sent: what was changed, when, and by whom in kind. Never content, prompts or keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import structlog
from django.conf import settings
from django.core.mail import send_mail

from audit.consent import standings
from audit.models import AccessState, ActorKind, AuditEntry, Operation
from audit.proposals import ProposalState, proposals
from audit.removals import RemovalState, removals
from config.queue import ASK_STEWARD, TELL_STEWARD, put, put_later
from memory.errors import MailNotSent
from memory.models import Agent
from memory.time_machine import trail_view

# Read as it is shown, by people and by every mail server: quoted names (in which a link can stand), control characters,
# routes and letters that look like others are what Django's own check lets pass. (A domain in other letters has an xn--
# form.)
_PLAIN = re.compile(r"[A-Za-z0-9_+'-]+(\.[A-Za-z0-9_+'-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_WITHIN = re.compile(r"[^\s<>()\[\],;:\"/=|]+@[\w.-]+")

ADVICE = "must be a plain e-mail address: letters, digits and . _ + - ' before the @, a domain after it"


def is_plain(address: str) -> bool:
    return _PLAIN.fullmatch(address) is not None


def named_in(text: str) -> list[str]:
    """The addresses that somebody named in free words: `Jo <jo@acme.example>`."""
    found = _WITHIN.findall(text)
    return [text, *found, *(each.lstrip("'") for each in found)]


def askers(label: str, asked_by: str) -> tuple[str, ...]:
    """Whose wish a removal is: who asked, and whoever they said in free words that they ask for."""
    return (label, *named_in(asked_by))


_CONSOLE = "django.core.mail.backends.console.EmailBackend"
TOLD = ("model", "steward", "is_steward_only", "memory_path", "vault_path")
BEFORE, AFTER = 0, 1  # the steward there was before the entry, or after it


def of_key(agent: Agent, seq: int) -> None:
    """Write to the steward about a key. In the transaction of the entry, as every letter is asked for."""
    if agent.steward:
        put(TELL_STEWARD, agent.pk, seq, BEFORE)


def of_change(agent: Agent, seq: int, changed: dict[str, object]) -> None:
    """… about changed settings; to both stewards where it is the steward. `agent` is as it was before."""
    if not changed.keys() & set(TOLD):
        return
    if agent.steward:
        put(TELL_STEWARD, agent.pk, seq, BEFORE)
    if changed.get("steward"):
        put(TELL_STEWARD, agent.pk, seq, AFTER)
        for number in _undecided(agent):  # what is open waits for the new steward now, who has no link to it
            put(ASK_STEWARD, agent.pk, number)


def _undecided(agent: Agent) -> list[int]:
    requests = (each.number for each in standings(agent.pk).values() if each.state == AccessState.REQUESTED)
    proposed = (each.number for each in proposals(agent.pk).values() if each.state == ProposalState.OPEN)
    removed = (each.number for each in removals(agent.pk).values() if each.state == RemovalState.OPEN)
    return [*requests, *proposed, *removed]


def are_printed() -> bool:
    """Whether letters are written where the operator reads them, instead of sent: no steward is asked anything then."""
    return settings.EMAIL_BACKEND == _CONSOLE and not settings.DEBUG


def require_sent(agent: Agent) -> None:
    """Raise MailNotSent where a link to the agent's steward would be printed."""
    if agent.steward and are_printed():
        raise MailNotSent


def send(agent_id: int, seq: int, whose: int) -> str:
    """Write to that steward, if there is one; a code for it. Raises OSError when it cannot be sent."""
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    entry = trail_view.entry(agent, seq)
    address = steward_at(agent, seq, whose)
    if not address:
        return "no_steward"
    told = _told(entry)
    body = (
        f"You are told this as the steward of the agent {agent.label}.\n\n"
        + "".join(f"- {line}\n" for line in told)
        + (_NEW if whose == AFTER else "")
        + f"\nThat was done by {_DOERS[ActorKind(entry.actor_kind)]}, on {entry.at:%d %B %Y at %H:%M} UTC. It is entry "
        f"{entry.seq} of the agent's trail.\n"
    )
    subject = " ".join(f"{agent.label}: {told[0]}".split())  # one line, whatever was set: a header has no other
    send_mail(subject, body, None, [address])
    return "sent"


def steward_at(agent: Agent, seq: int, whose: int) -> str:
    """Who it was then: the next change of steward keeps, sealed, whom it replaced; else the present one."""
    changes = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.AGENT_CHANGED)
    later = changes.filter(seq__gte=seq + whose, detail__changed__has_key="steward").order_by("seq").first()
    return trail_view.note(agent, later) if later else agent.steward


def _told(entry: AuditEntry) -> list[str]:
    prefix = entry.detail.get("prefix", "")
    if entry.operation == Operation.KEY_ISSUED:
        return [f"a key to its memory was issued ({prefix}…)"]
    if entry.operation == Operation.KEY_REVOKED:
        return [f"a key to its memory was ended ({prefix}…)"]
    changed = entry.detail["changed"]
    return [_SETTINGS[name].format(changed[name] or _NOTHING.get(name)) for name in TOLD if name in changed]


_NEW = (
    "\nYou are its steward now: when somebody asks to read what it remembers, to remove some of it for good, or to "
    "change its model or its steward, you are mailed a link, and say yes or no. If you do not want to be, tell the "
    "organisation that runs it.\n"
)
_SETTINGS = {
    "model": "its model was changed to {}",
    "steward": "its steward was changed",
    "is_steward_only": "whether the steward alone may consent was changed: {}",
    "memory_path": "the file its runs are logged in, for whoever can read it, was changed to: {}",
    "vault_path": "the folder with files of what it remembers, for whoever can read them, was changed to: {}",
}
_NOTHING = {"is_steward_only": "no", "memory_path": "none; they are logged in its memory, sealed", "vault_path": "none"}
_DOERS = {
    ActorKind.AGENT: "the agent's own runtime",
    ActorKind.STEWARD: "the agent's steward",
    ActorKind.SYSTEM: "the service itself",
    ActorKind.PERSON: "a person",
    ActorKind.OPERATOR: "an operator, or a program of its tenant",
}


log = structlog.get_logger("palimpsest.mail")

WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360))  # before a letter is tried once more


def post(send: Callable[..., str], name: str, *numbers: int, tried: int) -> str:
    """What became of it, as a code. `numbers`, agent and entry first, are the task's, to be queued again."""
    agent_id, seq, *_ = numbers
    try:
        return send(*numbers)
    except OSError:  # the mail server's refusals are, too
        log.warning("letter not sent", agent=agent_id, seq=seq, attempt=tried + 1)
    if tried == len(WAITS):
        log.error("letter given up", agent=agent_id, seq=seq)
        return "given_up"
    put_later(name, *numbers, tried + 1, wait=WAITS[tried])
    return "put_off"
