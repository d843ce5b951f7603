"""The vectors of memories, for search by meaning."""

from django.db import models
from django.utils import timezone


class Vector(models.Model):
    """A memory's vector, sealed. It counts only while `digest` is the digest of the memory's content. A new vector is a
    new row."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField(help_text="the number of the memory")
    embedder = models.CharField(max_length=200)
    digest = models.BinaryField(max_length=32, help_text="the keyed digest of the embedded content")
    sealed = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number", "embedder"], name="vector_of_memory")]
        indexes = [models.Index(fields=["agent", "embedder", "id"], name="vector_in_order")]

    def __str__(self) -> str:
        return f"vector of memory {self.number}"


class Embedding(models.Model):
    """How far the vectors of an agent are. All memories up to `version` and `number` are done."""

    agent = models.OneToOneField("memory.Agent", models.PROTECT, primary_key=True, related_name="+")
    embedder = models.CharField(max_length=200)
    version = models.PositiveBigIntegerField(default=0)
    number = models.PositiveBigIntegerField(default=0)
    dimensions = models.PositiveIntegerField(default=0, help_text="of all its vectors; 0: no vector yet")
    tokens = models.PositiveBigIntegerField(default=0, help_text="tokens that the provider counted")
    taken_until = models.DateTimeField(default=timezone.now, help_text="until then, one worker makes vectors")
    turn = models.PositiveBigIntegerField(default=0, help_text="a worker's turn; the next worker has the next number")
    queued_at = models.DateTimeField(null=True, db_index=True, help_text="when a task was queued that is not begun yet")
    wait_until = models.DateTimeField(default=timezone.now, help_text="until then, nothing is tried after a failure")
    failures = models.PositiveIntegerField(default=0, help_text="in a row; one less after each success")
    problem = models.CharField(max_length=300, blank=True, help_text="why the last call failed, without content")

    def __str__(self) -> str:
        return f"vectors of agent {self.pk}"
