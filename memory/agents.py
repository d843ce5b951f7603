"""Making agents and issuing their keys. Each change is an entry in the agent's trail."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from audit.models import Operation
from audit.trail import Actor
from memory import editing
from memory.access import key_mac, new_key
from memory.errors import Invalid, Taken
from memory.models import Agent, AgentKey, Tenant
from memory.silo.keys import new_wrapped_key


def create(tenant_slug: str, slug: str, *, model: str, actor: Actor, **settings: Any) -> tuple[Agent, str]:
    """Make an agent, its tenant if need be, its data key and its first key, which is returned and never shown again.

    `settings` are fields of Agent. Raises Invalid, Taken.
    """
    with transaction.atomic():
        tenant = _tenant(tenant_slug)
        agent = _agent(tenant, slug, model, settings)
        with editing.begin(agent, Operation.AGENT_CREATED, actor, is_notice=True) as edit:
            edit.detail = {"model": model, "has_steward": bool(agent.steward)}
            edit.finish(always=True)
        return agent, _issue_key(agent, actor)


def _tenant(slug: str) -> Tenant:
    there = Tenant.objects.filter(slug=slug).first()
    if there is not None:
        return there
    tenant = Tenant(slug=slug)
    _clean(tenant, "tenant")
    try:
        with transaction.atomic():
            tenant.save()
    except IntegrityError:  # made by somebody else meanwhile
        return Tenant.objects.get(slug=slug)
    return tenant


def _agent(tenant: Tenant, slug: str, model: str, settings: dict[str, Any]) -> Agent:
    agent = Agent(tenant=tenant, slug=slug, model=model, **settings)
    _clean(agent, "agent")
    if agent.refine_every is not None:
        agent.due_at = timezone.now() + agent.refine_every
    try:
        with transaction.atomic():
            agent.save()
    except IntegrityError:
        if Agent.objects.filter(tenant=tenant, slug=slug).exists():
            raise Taken(f"There is already an agent {agent.label}.") from None
        raise Invalid("agent", "its settings do not fit together: the target is no more than the budget") from None
    agent.wrapped_key = new_wrapped_key(agent.pk)
    agent.save(update_fields=["wrapped_key"])
    return agent


def _clean(row: Tenant | Agent, name: str) -> None:
    """Django's own field checks, told as a domain error without the value."""
    try:
        row.clean_fields()
        return
    except ValidationError as problem:
        field = next(iter(problem.message_dict))
    # Not in the handler: the error there holds the value.
    raise Invalid(name if field == "slug" else field, _ADVICE.get(field, "is not valid"))


_ADVICE = {
    "slug": "must be 1 to 64 lower-case letters, digits, '-' and '_', beginning and ending with a letter or digit",
    "steward": "must be an e-mail address",
    "retention": "must be a number from 0.50 to 1.00",
}


def _issue_key(agent: Agent, actor: Actor) -> str:
    prefix, secret, key = new_key()
    AgentKey.objects.create(agent=agent, prefix=prefix, mac=key_mac(agent.pk, prefix, secret))
    with editing.begin(agent, Operation.KEY_ISSUED, actor, is_notice=True) as edit:
        edit.detail = {"prefix": prefix}
        edit.finish(always=True)
    return key
