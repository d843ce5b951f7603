"""Memory stores: collections of memories with paths, as in Anthropic's API. Names and paths are content, so they are
sealed."""

from django.db import models


class Store(models.Model):
    """A memory store inside one agent's silo. `sealed` has its name, its description and its metadata."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField()
    sealed = models.BinaryField()
    memories = models.IntegerField(default=0, help_text="number of its memories, for the limit")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="store_number_in_agent")]
        # Deleted stores stay, and may be very many.
        indexes = [models.Index(fields=["agent", "number"], condition=models.Q(deleted_at=None), name="store_kept")]

    def __str__(self) -> str:
        return f"store {self.number}"


class StoreVersion(models.Model):
    """A change of a memory in a store: the audit entry that made it, and its kind. The content is in the trail."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    store = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField(help_text="the number of the memory")
    seq = models.PositiveBigIntegerField(help_text="the number of the audit entry")
    at = models.DateTimeField()
    operation = models.CharField(max_length=8, help_text="created, modified or deleted")
    redaction = models.PositiveBigIntegerField(null=True, help_text="the audit entry that redacted it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number", "seq"], name="store_version_once")]
        indexes = [models.Index(fields=["agent", "store", "seq"], name="store_version_of_store")]

    def __str__(self) -> str:
        return f"memory {self.number}, {self.operation} by entry {self.seq}"
