"""Tenants, and the limits of refinement sessions that a tenant or an agent can set."""

from django.core.validators import RegexValidator
from django.db import models

SLUG = RegexValidator(r"^[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\Z", "lower-case letters, digits, '-' and '_', 1 to 64")


class RefinementLimits(models.Model):
    """Limits of a refinement session. If an agent's limit is null, the tenant's limit applies. If the tenant's limit is
    null, too, the service's default applies."""

    max_changes = models.PositiveIntegerField(
        null=True, blank=True, help_text="maximum number of discards and rewrites"
    )
    max_steps = models.PositiveIntegerField(null=True, blank=True, help_text="maximum number of model responses")
    max_searches = models.PositiveIntegerField(null=True, blank=True)
    max_failed_calls = models.PositiveIntegerField(null=True, blank=True)
    max_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="maximum number of seconds")
    max_model_tokens = models.PositiveBigIntegerField(null=True, blank=True, help_text="tokens of prompts and replies")

    class Meta:
        abstract = True


class Tenant(RefinementLimits):
    """An organization. Every agent belongs to exactly one tenant. Only superusers, and members of the tenant, can see
    the tenant."""

    slug = models.CharField(max_length=64, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    sessions_at_once = models.PositiveIntegerField(
        null=True, blank=True, help_text="maximum number of sessions that run in workers at the same time; 0: no limit"
    )
    month_tokens = models.PositiveBigIntegerField(
        "model tokens a month", null=True, blank=True, help_text="maximum number of tokens in a calendar month (UTC)"
    )

    # Signed together with the memberships (memory/access/roles.py).
    members_seq = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    members_mac = models.BinaryField(max_length=32, null=True)
    live_prefixes = models.TextField(default="", db_default="", editable=False)  # fingerprints of keys and invitations

    def __str__(self) -> str:
        return self.slug
