"""Recorded sessions: conversations between a person and an agent."""

from django.db import models

_IS_OPEN = models.Q(ended_at__isnull=True)


class RecordedSession(models.Model):
    """A session in which a conversation in one project is recorded. It is not a refinement session."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    name = models.CharField(max_length=64)
    project = models.CharField(max_length=100)
    began_at = models.DateTimeField()
    last_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    numbers = models.JSONField(default=list, help_text="the numbers of its recordings, in order")
    memory = models.PositiveBigIntegerField(
        null=True, help_text="the number of the session memory; set when the session has ended"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "project", "name"], name="recorded_session_once")]
        indexes = [
            models.Index(fields=["agent", "last_at"], name="recorded_session_last"),
            models.Index(fields=["last_at"], condition=_IS_OPEN, name="recorded_session_open"),
            models.Index(fields=["agent", "name"], name="recorded_session_name"),
            models.Index(fields=["agent", "project", "last_at"], name="recorded_session_project"),
            models.Index(fields=["agent", "project", "last_at"], condition=_IS_OPEN, name="recorded_session_current"),
        ]

    def __str__(self) -> str:
        return f"recorded session of {self.began_at:%Y-%m-%d %H:%M}"
