"""Letters to stewards that wait, and turns of tasks. They have no content and no addresses."""

from django.db import models
from django.utils import timezone


class LetterKind(models.IntegerChoices):
    BEFORE = 0  # about a change, to the steward before it
    AFTER = 1  # about a change, to the steward after it
    LINK = 2  # a link to decide about a request
    DECISION = 3  # the confirmation of a decision about a request


class Letter(models.Model):
    """A letter that waits. The row is deleted when the letter is sent or given up. As in `Waiting`, there is no foreign
    key to the agent."""

    tenant = models.ForeignKey("memory.Tenant", models.CASCADE, related_name="+")
    agent_id = models.BigIntegerField()
    kind = models.PositiveSmallIntegerField(choices=LetterKind)
    number = models.PositiveBigIntegerField(help_text="the number of the audit entry or of the request")
    tries = models.PositiveSmallIntegerField(default=0)
    wait_until = models.DateTimeField(default=timezone.now, help_text="the time of the next attempt")

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.number} of agent {self.agent_id}"


class Turn(models.Model):
    """The task with a name, such as "letters/12" or "webhooks". One worker at a time carries it out. It owns the row
    while `turn` is its number."""

    name = models.CharField(max_length=40, primary_key=True)
    turn = models.PositiveBigIntegerField(default=0)
    wait_until = models.DateTimeField(default=timezone.now, help_text="until then, no other task is queued")

    def __str__(self) -> str:
        return self.name
