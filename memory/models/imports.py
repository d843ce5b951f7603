"""Records about imports from other systems, and about analyses of git repositories."""

from __future__ import annotations

from django.db import models


class HistoryAnalysis(models.Model):
    """The last analysis of a project's git history: its head, its limits and parts, and the memory it wrote. A history
    with the same head is not analyzed again."""

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
    """A part of another system's memory that was imported, or that a person decided not to import. Keyed digests
    identify it, so that a second migration imports nothing twice, and nothing that was redacted."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    source_digest = models.BinaryField(max_length=32, help_text="keyed; of the project, the file and the place in it")
    file_digest = models.BinaryField(max_length=32, help_text="keyed; of the project and the file")
    text_digest = models.BinaryField(max_length=32, help_text="keyed; of the text in the file")
    number = models.PositiveBigIntegerField(
        null=True, help_text="the number of its memory; null if it was not imported"
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
