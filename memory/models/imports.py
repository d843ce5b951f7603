"""What was read from elsewhere: files of other systems, and the history of git repositories."""

from __future__ import annotations

from django.db import models


class HistoryAnalysis(models.Model):
    """The last analysis of a project's git history: its head, its limits and parts, and the memory it wrote. A history
    with the same head is not analyzed again."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    project = models.CharField(max_length=100)
    head = models.CharField(max_length=64, help_text="the commit")
    asked = models.JSONField(default=dict, help_text="within which limits, and which parts")
    at = models.DateTimeField()
    memory = models.PositiveBigIntegerField(help_text="the number of its memory")
    version = models.PositiveBigIntegerField(help_text="of that memory, as it was written")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "project"], name="history_analysis_of_project")]

    def __str__(self) -> str:
        return f"analysis of {self.at:%Y-%m-%d}, memory {self.memory}"


class Original(models.Model):
    """A file of another system as it was when memories were taken from it, sealed in `OriginalPart` (the setting
    `migration_backup_originals`; the file itself is never changed). For its agent's side alone."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    entry = models.PositiveBigIntegerField(help_text="of the trail, the first of its migration")
    nth = models.PositiveIntegerField(help_text="of the migration's files, from 0")
    sealed_path = models.BinaryField(help_text="below the folder it was found in")
    size = models.PositiveBigIntegerField(help_text="bytes")
    modified_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "entry", "nth"], name="original_of_migration")]

    def __str__(self) -> str:
        return f"original {self.nth} of the migration of entry {self.entry}"


class OriginalPart(models.Model):
    """A megabyte of such a file, compressed and sealed."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    entry = models.PositiveBigIntegerField(help_text="as the original's")
    nth = models.PositiveIntegerField(help_text="as the original's")
    place = models.PositiveIntegerField(help_text="in the file, from 0")
    sealed = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "entry", "nth", "place"], name="original_part_in_place")
        ]

    def __str__(self) -> str:
        return f"part {self.place} of original {self.nth} of the migration of entry {self.entry}"


class Moved(models.Model):
    """What became of a piece of another system's memory: of which memory it was the beginning, or that it was left
    beside. Found again by keyed digests, so that a second migration stores nothing twice."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    key_digest = models.BinaryField(max_length=32, help_text="keyed, of its project, system, file and place in it")
    content_digest = models.BinaryField(max_length=32, help_text="keyed, of what it said there")
    place_digest = models.BinaryField(
        max_length=32, db_default=b"", help_text="keyed, of the list or text that it is part of"
    )
    file_digest = models.BinaryField(max_length=32, db_default=b"", help_text="keyed, of its file")
    number = models.PositiveBigIntegerField(null=True, help_text="of its memory; none where it was left beside")
    version = models.PositiveBigIntegerField(help_text="of that memory, as it was written")
    before = models.JSONField(
        default=list, db_default=[], help_text="number and version of what it was before, newest first"
    )
    entry = models.PositiveBigIntegerField(null=True, help_text="of the original it came from, where that is kept")
    nth = models.PositiveIntegerField(null=True, help_text="of the original")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "key_digest"], name="moved_once")]
        indexes = [
            models.Index(fields=["agent", "number"], name="moved_number"),
            models.Index(fields=["agent", "content_digest"], name="moved_words"),
            models.Index(fields=["agent", "place_digest"], name="moved_place"),
            models.Index(fields=["agent", "file_digest"], name="moved_file"),
        ]

    def __str__(self) -> str:
        return f"moved, memory {self.number}" if self.number else "left beside"
