"""Records about imports from other systems, and about analyses of git repositories."""

from __future__ import annotations

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

    Keyed digests identify each part. With these digests, a later migration does not import a part twice, and does not
    import a redacted part again.
    """

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    source_digest = models.BinaryField(max_length=32, help_text="a keyed digest of project, file and place in the file")
    file_digest = models.BinaryField(max_length=32, help_text="a keyed digest of the project and the file")
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
