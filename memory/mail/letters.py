"""Inform an agent's steward about changes by mail. This module also checks mail addresses.

A queued mail has only the numbers of the agent and of the audit entry. The text is made from the entry when the mail is
sent. The text says what changed, when, and what kind of actor made the change. It never contains content, prompts or
keys.
"""

import re
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.db.models import Q
from django.utils import timezone

from audit.consent import LAPSES, OPEN, requests, same_address
from audit.models import ActorKind, AuditEntry, Operation
from audit.verify import intact_entries
from memory.access import authority, recovery
from memory.errors import MailNotSent
from memory.mail import outbox
from memory.models import Agent, LetterKind
from memory.time_machine import trail_view

# Stricter than Django's check, which allows quoted names (they can contain links), control characters, and letters that
# look like others. International domains have an xn-- form.
_PLAIN = re.compile(r"[A-Za-z0-9_+'-]+(\.[A-Za-z0-9_+'-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_ADDRESS = re.compile(r"[^\s<>()\[\],;:\"/=|]+@[\w.-]+")

ADVICE = "must be a plain email address: letters, digits and . _ + - ' before the @, then a domain"


def is_plain(address: str) -> bool:
    return _PLAIN.fullmatch(address) is not None


def requesters(asker: str, asked_by: str) -> list[str]:
    """Return the possible requesters: the label of the actor, the free text `asked_by`, and the addresses in this text,
    such as `jo@acme.example` in `Jo <jo@acme.example>`."""
    found = _ADDRESS.findall(asked_by)
    return [asker, *filter(None, [asked_by, *found, *(each.lstrip("'") for each in found)])]


BEFORE, AFTER = LetterKind.BEFORE, LetterKind.AFTER  # which steward to write to


def notify_key(agent: Agent, seq: int) -> None:
    """Queue a mail to the steward about a new or revoked key. Call this function in the transaction that writes the
    entry."""
    if agent.steward:
        _queue(agent, seq, BEFORE)


def notify_change(agent: Agent, seq: int, changed: dict[str, object]) -> None:
    """Queue mail about changed settings. Both the old steward and the new steward get the mail. `agent` still has the
    values from before the change."""
    if not changed.keys() & _SETTINGS.keys():
        return
    if agent.steward:
        _queue(agent, seq, BEFORE)
    if changed.get("steward"):
        _queue(agent, seq, AFTER)
        since = timezone.now() - timedelta(days=1)
        changes = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.AGENT_CHANGED, at__gt=since)
        is_too_much = changes.filter(detail__changed__has_key="steward").count() > MOST_STEWARDS
        for request in () if is_too_much else requests(agent.pk).values():
            if request.state in OPEN:  # the new steward needs links to the open requests
                outbox.add(agent, LetterKind.LINK, request.number)


def _queue(agent: Agent, seq: int, whose: LetterKind) -> None:
    """Queue a mail, unless it is clear that `send` would not send it. Otherwise one key could store very many."""
    entry = AuditEntry.objects.get(agent_id=agent.pk, seq=seq)
    recent = Q(agent_id=agent.pk, seq__gt=seq - RECENT)  # a lock is held, so only a few
    if entry.detail.get("changed", {}).get("keys_lifted_at") or not _is_too_many(agent, entry, recent):
        outbox.add(agent, whose, seq)


def are_printed() -> bool:
    """Whether mail goes to the console, where the operator can read it. In that case, no link may be mailed to a
    steward, because the operator could use the link."""
    return settings.EMAIL_BACKEND == "django.core.mail.backends.console.EmailBackend" and not settings.DEBUG


def require_mail(agent: Agent) -> None:
    """Raise MailNotSent if the agent has a steward but mail goes to the console."""
    if agent.steward and are_printed():
        raise MailNotSent


def send(agent_id: int, seq: int, whose: int) -> str:
    """Mail the steward about an entry. An entry can change the steward: `whose` says whether to write to the old or the
    new one. Return a result code. The code is "no_steward" if the agent had no steward. Raises OSError."""
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    authority.require(agent)
    rows = _around(agent, seq)
    entry = next(
        (AuditEntry.from_db("default", list(row), list(row.values())) for row in rows if row["seq"] == seq), None
    )
    if entry is None:
        log.error("letter not sent: altered trail", agent=agent_id, seq=seq)
        return "altered"
    address = _steward(agent, rows, seq + whose)
    if not address:
        return "no_steward"
    changes, code = _changes(entry), _recovery(agent, entry, address)
    if not code and _is_too_many(agent, entry):
        log.warning("letter not sent: too many changes in a day", agent=agent_id, seq=seq)
        return "too_many"
    body = (
        f"You receive this mail because you are the steward of the agent {agent.label}. This has changed:\n\n"
        + "".join(f"- {line}\n" for line in changes)
        + (_NEW if whose == AFTER and address == agent.steward else "")
        + f"\n{_ACTORS[ActorKind(entry.actor_kind)]} made this change on {entry.at:%d %B %Y at %H:%M} UTC. It is entry "
        f"{entry.seq} of the agent's audit trail.\n{code}"
    )
    subject = f"{agent.label}: {changes[0].partition(': ')[0]}"  # without a text of the sender's choice
    send_mail(subject, body, None, [address])
    return "sent"


def _is_too_many(agent: Agent, entry: AuditEntry, only: Q | None = None) -> bool:
    """Whether the changes in the 24 hours before this entry use up the limit of letters. `only` chooses those that are
    counted."""
    stewards = Agent.objects.filter(pk=agent.pk).values("steward")  # not as a value, which a log may contain
    agents = Agent.objects.filter(tenant=agent.tenant, steward__in=stewards).values("pk")
    # After the clock was ahead, entries have the same date for long. They do not count, so that no letter is missing.
    today = AuditEntry.objects.filter(only or Q(), operation__in=_NOTICED, at__lt=entry.at)
    today = today.filter(at__gt=entry.at - timedelta(days=1))
    # Letters about the first claims and changes of the steward are always sent. So other changes cannot hide them.
    is_about_steward = "steward" in entry.detail.get("changed", {})
    important = Q(detail__changed__has_key="steward") if is_about_steward else Q(operation=Operation.CLAIMED)
    is_important = is_about_steward or entry.operation == Operation.CLAIMED
    if is_important and today.filter(important, agent_id=agent.pk).count() < MOST_IMPORTANT:
        return False
    return today.filter(agent_id__in=agents).count() >= MOST_A_DAY


def steward_before(agent: Agent, seq: int) -> str:
    """Return the steward's address before an entry, or "" if SQL altered the trail."""
    return _steward(agent, _around(agent, seq), seq)


def _steward(agent: Agent, rows: list[Any], seq: int) -> str:
    """The steward's address before entry `seq`. A former address is encrypted. `rows` is the result of `_around`."""
    if rows and not any("steward" in row["detail"].get("changed", {}) for row in rows if row["seq"] >= seq):
        return agent.steward
    before = [row for row in rows if row["seq"] < seq]
    return str(trail_view.authority_of(agent, before[-1])["steward"]) if before else ""


def _around(agent: Agent, seq: int) -> list[Any]:
    """The entries that changed the agent's settings, from the last one before entry `seq` on. Empty if SQL altered the
    trail."""
    before = AuditEntry.objects.filter(agent_id=agent.pk, seq__lt=seq, operation__in=authority.OPERATIONS)
    since = before.order_by("-seq").values_list("seq", flat=True).first() or 1
    return _setting_changes(agent, since) or _setting_changes(agent, since)  # a redaction may just be committed


_NOTICED = (Operation.AGENT_CHANGED, Operation.CLAIMED, Operation.KEY_ISSUED, Operation.KEY_REVOKED)
SETTLED = timedelta(hours=72)  # a steward whom a key named less than this before a suspension gets no code
MOST_STEWARDS = 10  # changes of a steward in 24 hours after which the new one gets links to open requests
MOST_A_DAY = 50  # changes in 24 hours that a steward is informed about
MOST_IMPORTANT = 3  # an agent's claims, or changes of the steward, in 24 hours of which the steward always learns
RECENT = 1_000  # entries before a change that are counted before its letter is queued


def _recovery(agent: Agent, entry: AuditEntry, address: str) -> str:
    """The code for a new key, if the entry lifts the suspension of the keys. Nobody gets the code by their own act."""
    if not entry.detail.get("changed", {}).get("keys_lifted_at"):
        return ""
    if agent.keys_lifted_at is None or entry.at < agent.keys_lifted_at:  # the entry of an earlier lift
        return ""
    if address != agent.steward or are_printed():
        return ""
    rows = _setting_changes(agent)
    by = [row["actor_label"] for row in rows if row["seq"] == entry.seq]
    if not by or same_address(address, by[0]) or is_new_steward(agent, rows):
        log.warning("code not sent: own act, new steward or altered trail", agent=agent.pk)
        return ""
    return _RECOVERY.format(recovery.steward_code(agent), agent.keys_lifted_at + LAPSES)


def is_new_steward(agent: Agent, rows: list[Any] | None = None) -> bool:
    """Whether a key named the present steward less than 72 hours before the suspension, or later. A stolen key may have
    named its thief. `rows` are the entries that changed the settings, after a suspension was lifted. Without them, keys
    that are not suspended may be suspended now."""
    is_now = rows is None and not agent.keys_suspended
    rows = _setting_changes(agent) if rows is None else rows
    changes = [row["detail"].get("changed", {}) if row["operation"] == Operation.AGENT_CHANGED else {} for row in rows]
    suspended = [row["at"] for row, changed in zip(rows, changes, strict=True) if changed.get("keys_suspended")]
    suspended += [timezone.now()] if is_now else []
    for before, (row, changed) in zip(rows, list(zip(rows, changes, strict=True))[1:], strict=False):
        is_by_key = row["actor_kind"] == ActorKind.AGENT and "steward" in changed
        if is_by_key and suspended and row["at"] >= suspended[-1] - SETTLED:
            return bool(trail_view.authority_of(agent, before)["steward"] != agent.steward)
    return False


def _setting_changes(agent: Agent, since: int = 1) -> list[Any]:
    """The entries that changed the agent's settings, from an intact trail. Empty if SQL altered the trail."""
    head = agent.audit_seq, bytes(agent.audit_mac)
    is_change = lambda row: row["operation"] in authority.OPERATIONS  # noqa: E731
    return intact_entries(agent.pk, is_change, since, head[0] + 1, head)


_RECOVERY = (
    "\nWith this code, the agent gets a new key:\n\n    {}\n\nGive it only to the person who runs the agent. The agent "
    "exchanges it like a key. It works once, until {:%d %B %Y at %H:%M} UTC, and ends all other keys. "
    "Anybody who has the code can read the agent's memories.\n"
)


def _changes(entry: AuditEntry) -> list[str]:
    prefix = entry.detail.get("prefix", "")
    if entry.operation == Operation.KEY_ISSUED:
        return [f"a key to its memory was created ({prefix}…)"]
    if entry.operation == Operation.KEY_REVOKED:
        return [f"a key to its memory was revoked ({each}…)" for each in prefix.split()]
    changed, claimed = entry.detail["changed"], ["its silo was claimed"] if entry.operation == Operation.CLAIMED else []
    texts = {name: (_SETTINGS if changed[name] else _EMPTIED)[name] for name in _SETTINGS if name in changed}
    return [*claimed, *(text.format(changed[name]) for name, text in texts.items())]


_NEW = (
    "\nYou are now its steward. You receive a link by mail when somebody asks to read its memories, to delete some of "
    "them permanently, or to change its model or steward. You then approve or deny. If you do not want this role, tell "
    "the organisation that runs the agent.\n"
)
_SETTINGS = {
    "model": "it has another model: {}",
    "embedder": "this embedder reads its memories now, to search by meaning: {}",
    "steward": "its steward was changed",
    "is_steward_only": "only its steward can consent now",
    "memory_path": "its log of runs is now in this file, in clear text: {}",
    "vault_path": "it has another folder for files of its memories: {}",
    "keys_suspended": "its keys are suspended: it cannot use its memory until an owner lifts the suspension",
    "keys_lifted_at": "the suspension of its keys was lifted, so that it can get a new key",
}
_EMPTIED = _SETTINGS | {
    "model": "it has no model any more",
    "embedder": "it has no embedder of its own any more",
    "keys_lifted_at": "its keys are suspended again",
    "is_steward_only": "its runtime (a program) can consent, too",
    "memory_path": "its log of runs is now encrypted in its memory",
    "vault_path": "it has no folder with files of its memories any more",
}
_ACTORS = {
    ActorKind.AGENT: "The agent's own runtime",
    ActorKind.STEWARD: "The agent's steward",
    ActorKind.SYSTEM: "The service",
    ActorKind.PERSON: "A person",
    ActorKind.OPERATOR: "An operator or a program of the tenant",
}


log = structlog.get_logger("palimpsest.mail")
