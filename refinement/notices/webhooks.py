"""Webhooks of tenants: signed messages about failed sessions, and about agents that are over their budgets for long.

The messages follow the specification "Standard Webhooks". They have names, numbers and codes, and never content.

An event is stored as a `Delivery` in the transaction that causes it, and deleted when the server accepts it. So a kill
loses no event, but the server can get one twice, with the same id. A failed delivery waits longer each time, for a day.
One worker at a time delivers for a tenant, and a tenant whose server fails has one short attempt per pause.
"""

import hmac
import json
import secrets
import time
from base64 import b64encode
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from config.keyring import macs
from config.queue import SEND_WEBHOOKS, is_ending, put
from memory.models import Agent, Tenant
from refinement.notices import posting
from refinement.notices.models import Delivery, Event, Webhook

PAUSES = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 120, 240, 480))  # after each failure
LONGEST_PAUSE = timedelta(hours=1)  # of all deliveries of a tenant
GIVE_UP = timedelta(hours=24)
TURN = timedelta(minutes=1)  # a worker extends its turn before each attempt
LOST = timedelta(minutes=10)  # after this time, a queued task is queued again
TASK_SECONDS = 20.0  # then other tasks of the queue get their turn

log = structlog.get_logger("palimpsest.webhooks")


# --- settings


def of(tenant: Tenant) -> Webhook:
    """Return the tenant's webhook. It is off, and not stored, if nobody has set it."""
    return Webhook.objects.filter(tenant=tenant).first() or Webhook(tenant=tenant)


def configure(tenant: Tenant, url: str, *, new_secret: bool = False) -> str:
    """Set the address of a tenant's webhook. An empty address turns it off, and deletes pending deliveries. Return the
    secret if it is new, or else "". Raises Invalid."""
    if url:
        posting.require_valid(url)
    now = timezone.now()
    with transaction.atomic():
        Webhook.objects.get_or_create(tenant=tenant)
        hook = Webhook.objects.select_for_update(of=("self",)).select_related("tenant").get(tenant=tenant)
        is_new = bool(url) and (new_secret or not hook.version)
        if url and hook.url:
            hook.deliveries.update(wait_until=now)
        else:
            hook.deliveries.all().delete()
        hook.url, hook.failures, hook.problem, hook.wait_until = url, 0, "", now
        hook.version += is_new
        hook.save(update_fields=["url", "failures", "problem", "wait_until", "version"])
    return f"whsec_{_base64(_secrets(hook)[0])}" if is_new else ""


def _secrets(hook: Webhook) -> list[bytes]:
    """The secret of a webhook. If the keyring has several peppers, there is a secret for each of them."""
    return macs(f"webhook/{hook.tenant_id}/{hook.tenant.slug}/{hook.version}")


def _signatures(hook: Webhook, message: str, seconds: int, body: bytes) -> str:
    text = f"{message}.{seconds}.".encode() + body
    return " ".join(f"v1,{_base64(hmac.digest(secret, text, 'sha256'))}" for secret in _secrets(hook))


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


# --- events


def add_failed(session: Any) -> None:
    """Store an event about a failed session, if its tenant has a webhook. Call this in the transaction that ends the
    session."""
    values = {"session": session.number, "outcome": session.outcome, "tokens": session.tokens_after}
    values |= {
        "budget": session.budget_tokens,
        "reason": session.reason,
        "url": f"{settings.PUBLIC_URL}{admin_path(session)}",
    }
    _add(session.agent, Event.SESSION_FAILED, values)


def add_over_budget(agent: Agent, since: datetime) -> None:
    """Store an event about an agent that is over its budget for long, if its tenant has a webhook."""
    values = {"tokens": agent.core_tokens, "budget": agent.budget_tokens, "since": since.isoformat()}
    _add(
        agent, Event.OVER_BUDGET, values | {"reason": "over_budget", "url": f"{settings.PUBLIC_URL}{admin_path(agent)}"}
    )


def _add(agent: Agent, event: Event, values: dict[str, Any]) -> None:
    hook = Webhook.objects.filter(tenant_id=agent.tenant_id).exclude(url="").first()
    if hook is not None:
        data, now = {"tenant": agent.tenant.slug, "agent": agent.label} | values, timezone.now()
        message = f"msg_{secrets.token_hex(12)}"
        hook.deliveries.create(message=message, type=event, at=now, data=data, wait_until=now)


def admin_path(row: models.Model) -> str:
    """The path of a row's page in the admin. Workers do not load the URLs of the service, because this takes
    seconds."""
    return f"/admin/{row._meta.label_lower.replace('.', '/')}/{row.pk}/change/"


# --- deliveries


def queue_late() -> None:
    """Queue a task for each tenant with deliveries that are due, unless a worker delivers for it."""
    now = timezone.now()
    due = Delivery.objects.filter(_is_due(now), webhook=OuterRef("pk"))
    for tenant_id, turn in Webhook.objects.filter(_is_due(now), Exists(due)).exclude(url="").values_list("pk", "turn"):
        with transaction.atomic():
            rows = Webhook.objects.filter(pk=tenant_id, turn=turn)
            if rows.update(turn=turn + 1, wait_until=now + LOST):
                put(SEND_WEBHOOKS, tenant_id, turn + 1)


def _is_due(now: datetime) -> Q:
    """Whether a pause is over. A pause that ends too far in the future comes from a wrong clock."""
    return Q(wait_until__lte=now) | Q(wait_until__gt=now + GIVE_UP)


def send(tenant_id: int, turn: int) -> str:
    """Deliver the tenant's events that are due, for TASK_SECONDS at most, until an attempt fails. Returns a code. If
    the queue delivers the task twice, the second delivery does nothing."""
    if not Webhook.objects.filter(pk=tenant_id, turn=turn).update(turn=turn + 1):
        return "taken"
    mine, until = Webhook.objects.filter(pk=tenant_id, turn=turn + 1), time.monotonic() + TASK_SECONDS
    while mine.update(wait_until=timezone.now() + TURN):
        hook, now = mine.select_related("tenant").get(), timezone.now()
        delivery = hook.deliveries.filter(_is_due(now)).order_by("tries", "pk").first() if hook.url else None
        if delivery is None or is_ending() or time.monotonic() > until:
            mine.update(wait_until=now)
            return "sent"
        if problem := _attempt(hook, delivery):
            _put_off(mine, hook, delivery, problem)
            return "put_off"
        delivery.delete()
        mine.update(failures=0, problem="")
    return "taken"


def _attempt(hook: Webhook, delivery: Delivery) -> str:
    """Send an event. Return why this failed, or ""."""
    message = {"type": delivery.type, "timestamp": delivery.at.isoformat(), "data": delivery.data}
    body, seconds = json.dumps(message).encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": delivery.message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": _signatures(hook, delivery.message, seconds, body),
    }
    return posting.post(hook.url, body, headers)


def _put_off(mine: models.QuerySet[Webhook], hook: Webhook, delivery: Delivery, problem: str) -> None:
    """Wait after a failure. The tenant's other deliveries wait, too, so that a dead server does not occupy workers.
    Give up events that are older than a day."""
    now, tries = timezone.now(), delivery.tries + 1
    again, pause = now + _pause(delivery.tries), min(_pause(hook.failures), LONGEST_PAUSE)
    hook.deliveries.filter(pk=delivery.pk).update(tries=tries, wait_until=min(again, delivery.at + GIVE_UP))
    mine.update(failures=F("failures") + 1, problem=problem, wait_until=now + pause)
    log.warning("webhook delivery failed", tenant=hook.tenant_id, number=delivery.pk, attempt=tries)
    for old in hook.deliveries.filter(at__lte=now - GIVE_UP).values_list("pk", flat=True):
        log.error("webhook delivery given up", tenant=hook.tenant_id, number=old)
    hook.deliveries.filter(at__lte=now - GIVE_UP).delete()


def _pause(failures: int) -> timedelta:
    return PAUSES[min(failures, len(PAUSES) - 1)]
