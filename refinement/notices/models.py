"""The tables of notices: webhooks, their pending deliveries, and agents over their budgets. They have no content."""

from django.db import models
from django.utils import timezone

from memory.models import Tenant


class Webhook(models.Model):
    """A tenant's webhook. The tenant's owners, and superusers, can see and set it. The secret is not stored: it is
    derived from a key of the service, the tenant and `version`."""

    tenant = models.OneToOneField(Tenant, models.CASCADE, primary_key=True, related_name="+")
    url = models.CharField(max_length=500, blank=True, help_text="empty: off")
    version = models.PositiveIntegerField(default=0, help_text="the number of the secret; 0: no secret yet")
    failures = models.PositiveIntegerField(default=0, help_text="in a row")
    problem = models.CharField(max_length=200, blank=True, help_text="why the last attempt failed")
    is_quick = models.BooleanField(default=False, help_text="the last attempt succeeded without a delay")
    wait_until = models.DateTimeField(default=timezone.now, help_text="until then, nothing is delivered")


class Event(models.TextChoices):
    SESSION_FAILED = "session.failed"
    OVER_BUDGET = "agent.over_budget"


class Delivery(models.Model):
    """An event that waits until the tenant's webhook accepts it. The row is deleted then, or after a day of failures.
    `data` has names, numbers and codes."""

    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    message = models.CharField(max_length=40, help_text="the id of the event, the same in each attempt")
    type = models.CharField(max_length=20, choices=Event.choices)
    at = models.DateTimeField()
    data = models.JSONField()
    tries = models.PositiveIntegerField(default=0)
    wait_until = models.DateTimeField(help_text="the time of the next attempt")


class OverBudget(models.Model):
    """An agent whose core memory is over its budget. The row is deleted when the agent is back under its budget. It has
    no foreign key, as in `Waiting`."""

    agent_id = models.BigIntegerField(primary_key=True)
    since = models.DateTimeField(help_text="when the service first saw it")
    is_reported = models.BooleanField(default=False, help_text="the webhook has an event about it")
