"""Import jobs, records about imports from other systems, and records about analyses of git repositories."""

from django.db import models


class HistoryAnalysis(models.Model):
    """The newest analysis of a project's git history: the newest commit, the limits and parts of the analysis, and the
    memory that has the result. If none of these has changed, the history is not analyzed again."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    project = models.CharField(max_length=100)
    head = models.CharField(max_length=64, help_text="the newest commit")
    asked = models.JSONField(default=dict, help_text="the limits and parts of the analysis")
    at = models.DateTimeField()
    memory = models.PositiveBigIntegerField(help_text="the number of its memory")
    version = models.PositiveBigIntegerField(help_text="the version of that memory after the analysis")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "project"], name="history_analysis_of_project")]

    def __str__(self) -> str:
        return f"analysis of {self.at:%Y-%m-%d}, memory {self.memory}"


class ImportedPiece(models.Model):
    """A part of another system's memory that was imported, or that a person decided not to import.

    Keyed digests identify each part. With these digests, a later migration does not import a part twice. After a
    redaction, only the digests of the place are left. So a later migration does not import the part again from there.
    """

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    source_digest = models.BinaryField(max_length=32, help_text="a keyed digest of project, file and place in the file")
    file_digest = models.BinaryField(max_length=32, help_text="a keyed digest of the project and the file")
    has_id = models.BooleanField(default=False, db_default=False, help_text="the place has an id; it is not the text")
    text_digest = models.BinaryField(max_length=32, help_text="a keyed digest of the text in the file")
    number = models.PositiveBigIntegerField(
        null=True, help_text="the number of the imported memory; null if nothing was imported"
    )
    version = models.PositiveBigIntegerField(default=0, help_text="the version of that memory after the migration")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "source_digest"], name="imported_piece_once")]
        indexes = [
            models.Index(fields=["agent", "file_digest"], name="imported_piece_file"),
            models.Index(fields=["agent", "text_digest"], name="imported_piece_text"),
        ]

    def __str__(self) -> str:
        return f"imported piece, memory {self.number}" if self.number else "piece that was not imported"


class ImportJob(models.Model):
    """An import over the API that a worker carries out. Each agent has at most one row: a new job replaces the last
    job, which has ended."""

    agent = models.OneToOneField("memory.Agent", models.PROTECT, primary_key=True, related_name="+")
    number = models.PositiveBigIntegerField()
    key = models.ForeignKey("memory.AgentKey", models.PROTECT, related_name="+", help_text="the key of the request")
    format = models.CharField(max_length=20)
    project = models.CharField(max_length=100)
    state = models.CharField(max_length=7, default="queued", help_text="queued, running, done or failed")
    entry = models.PositiveBigIntegerField(null=True, help_text="its first audit entry; null: nothing is stored yet")
    imported = models.PositiveBigIntegerField(default=0, help_text="number of memories that are stored")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="how often a worker began since the last progress")
    moved_at = models.DateTimeField(help_text="the last progress")
    result = models.BinaryField(null=True, help_text="the sealed figures; null until the job is done")
    error = models.JSONField(null=True, help_text="why the job failed, without content")

    def __str__(self) -> str:
        return f"import {self.number}, {self.state}"


class ImportBody(models.Model):
    """The sealed body of an import job, until the job ends. It has a table of its own, because SQLite writes a whole
    row again when one of its columns changes."""

    agent = models.OneToOneField("memory.Agent", models.PROTECT, primary_key=True, related_name="+")
    sealed = models.BinaryField()

    def __str__(self) -> str:
        return f"body of an import of agent {self.agent_id}"
