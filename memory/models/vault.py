"""Vaults: the files of an agent's memories."""

from django.db import models


class Vault(models.Model):
    """The state of an agent's vault. The field `vault_path` of the agent has the folder of the vault."""

    agent = models.OneToOneField("memory.Agent", models.PROTECT, primary_key=True, related_name="vault")
    seq = models.PositiveBigIntegerField(default=0, help_text="the last entry that the files include")
    resets = models.PositiveBigIntegerField(default=0, db_default=0, help_text="how often every file was due again")
    fault = models.CharField(max_length=200, blank=True, help_text="why the last attempt failed, without content")
    fault_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"vault, at entry {self.seq}"


class VaultFile(models.Model):
    """The file of a memory in the agent's vault. The row describes the file as the service last wrote it. Only
    `memory.vault` writes these rows."""

    class State(models.TextChoices):
        THERE = "there"
        SET_ASIDE = "set_aside"  # the file is in the folder .discarded/ or .beneath/

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField(help_text="the number of the memory")
    version = models.PositiveBigIntegerField(help_text="the version of the memory in the file")
    rules_version = models.CharField(max_length=20, help_text="the version of the memory rules in the file")
    state = models.CharField(max_length=9, choices=State.choices)
    sealed_path = models.BinaryField(help_text="the sealed path in the vault; it can contain words of the content")
    digest = models.BinaryField(max_length=32, help_text="a keyed digest of the file, to detect manual edits")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="vault_file_of_memory"),
            models.CheckConstraint(condition=models.Q(state__in=["there", "set_aside"]), name="vault_file_known_state"),
        ]

    def __str__(self) -> str:
        return f"file of memory {self.number}"
