"""Webhooks of tenants: signed messages about failed sessions, and about agents that are over their budgets for long.

The messages follow the specification "Standard Webhooks". They have names, numbers and codes, and never content.

An event is stored as a `Delivery` in the transaction that causes it, and deleted when the server accepts it. So a kill
loses no event, but the server can get one twice, with the same id. A failed delivery waits longer each time, for a day.
One worker at a time delivers for all tenants, and a tenant whose server fails has one short attempt per pause.
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
from django.db.models import Exists, ExpressionWrapper, F, OuterRef, Q
from django.utils import timezone

from config.keyring import macs
from config.queue import SEND_WEBHOOKS
from memory.mail import turns
from memory.models import Agent, Tenant
from refinement.notices import posting
from refinement.notices.models import Delivery, Event, Webhook

PAUSES = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 120, 240, 480))  # after each failure
LONGEST_PAUSE = timedelta(hours=1)  # of all deliveries of a tenant
GIVE_UP = timedelta(hours=24)
QUICK_SECONDS = 1.0  # of an attempt, after which others go first

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
        hook.url, hook.failures, hook.problem, hook.is_quick, hook.wait_until = url, 0, "", False, now
        hook.version += is_new
        hook.save()
    return f"whsec_{_base64(_secrets(hook)[0])}" if is_new else ""


def _secrets(hook: Webhook) -> list[bytes]:
    """The secret of a webhook. If the keyring has several peppers, there is a secret for each of them."""
    return macs(f"webhook/{hook.tenant_id}/{hook.tenant.slug}/{hook.version}")


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


# --- events


def add_failed(session: Any) -> None:
    """Store an event about a failed session, if its tenant has a webhook. Call this in the transaction that ends the
    session."""
    values = {"session": session.number, "outcome": session.outcome, "tokens": session.tokens_after}
    _add(session.agent, Event.SESSION_FAILED, session, values | {"reason": session.reason})


def add_over_budget(agent: Agent, since: datetime) -> None:
    """Store an event about an agent that is over its budget for long, if its tenant has a webhook."""
    values = {"tokens": agent.core_tokens, "since": since.isoformat(), "reason": "over_budget"}
    _add(agent, Event.OVER_BUDGET, agent, values)


def _add(agent: Agent, event: Event, row: Any, values: dict[str, Any]) -> None:
    hook = Webhook.objects.filter(tenant_id=agent.tenant_id).exclude(url="").first()
    if hook is not None:
        values |= {"tenant": agent.tenant.slug, "agent": agent.label, "budget": row.budget_tokens}
        values |= {"url": f"{settings.PUBLIC_URL}{admin_path(row)}"}
        now, message = timezone.now(), f"msg_{secrets.token_hex(12)}"
        hook.deliveries.create(message=message, type=event, at=now, data=values, wait_until=now)


def admin_path(row: models.Model) -> str:
    """The path of a row's page in the admin. Workers do not load the URLs of the service, because this takes
    seconds."""
    return f"/admin/{row._meta.label_lower.replace('.', '/')}/{row.pk}/change/"


# --- deliveries


def queue_late() -> None:
    """Queue the task that delivers what is due, unless it is queued or a worker delivers."""
    if _due().exists():
        turns.queue("webhooks", SEND_WEBHOOKS)


def send(turn: int) -> str:
    """Deliver a few events that are due, until an attempt fails. Returns a code."""
    code = turns.run("webhooks", turn, _send_next)
    queue_late()
    return code


def _due() -> models.QuerySet[Webhook]:
    waiting = Delivery.objects.filter(turns.is_over(GIVE_UP), webhook=OuterRef("pk"))
    return Webhook.objects.filter(turns.is_over(GIVE_UP), Exists(waiting)).exclude(url="")


def _send_next() -> str:
    """Make one attempt for the tenant that has waited longest. Tenants whose last attempt failed or was slow come last,
    until they have waited for a minute. So do tenants with a new address: else somebody could get ahead with ever new
    addresses. Returns a code."""
    has_waited = Q(is_quick=True) | Q(wait_until__lt=timezone.now() - PAUSES[0])
    due = _due().annotate(has_waited=ExpressionWrapper(has_waited, models.BooleanField()))
    hook = due.order_by("-has_waited", "wait_until", "pk").select_related("tenant").first()
    waiting = hook and hook.deliveries.filter(turns.is_over(GIVE_UP)).order_by("tries", "pk").first()
    if not hook or not waiting:
        return "done"
    mine, start = Webhook.objects.filter(pk=hook.pk, url=hook.url), time.monotonic()  # not after another address
    if not mine.update(is_quick=False, wait_until=timezone.now() + PAUSES[0]):  # if this attempt ends the worker
        return "sent"  # it has another address now
    if problem := _attempt(hook, waiting):
        _put_off(mine, hook, waiting, problem)
        return "put_off"
    waiting.delete()
    is_quick = time.monotonic() - start < QUICK_SECONDS
    mine.update(failures=0, problem="", is_quick=is_quick, wait_until=timezone.now())
    return "sent"


def _attempt(hook: Webhook, delivery: Delivery) -> str:
    """Send an event. Return why this failed, or ""."""
    message = {"type": delivery.type, "timestamp": delivery.at.isoformat(), "data": delivery.data}
    body, seconds = json.dumps(message).encode(), int(time.time())
    text = f"{delivery.message}.{seconds}.".encode() + body
    signatures = [f"v1,{_base64(hmac.digest(secret, text, 'sha256'))}" for secret in _secrets(hook)]
    headers = {
        "Content-Type": "application/json",
        "webhook-id": delivery.message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
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
