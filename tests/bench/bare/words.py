"""The notes' full-text rows, in plain SQL."""

import re

from django.db import connection

SQLITE = (
    "CREATE VIRTUAL TABLE bare_words USING fts5(content, content='bare_note', content_rowid='id',"
    " tokenize='porter unicode61')",
)
POSTGRESQL = ("ALTER TABLE bare_note ADD COLUMN words tsvector", "CREATE INDEX ON bare_note USING gin (words)")
FOUND_SQLITE = (
    "SELECT n.id FROM bare_words w JOIN bare_note n ON n.id = w.rowid"
    " WHERE bare_words MATCH %s AND n.owner_id = %s ORDER BY bm25(bare_words), n.id LIMIT %s"
)
FOUND_POSTGRESQL = (
    "SELECT n.id FROM bare_note n, to_tsquery('english', %s) q WHERE n.words @@ q AND n.owner_id = %s"
    " ORDER BY ts_rank_cd(n.words, q, 1) DESC, n.id LIMIT %s"
)


def make() -> None:
    with connection.cursor() as cursor:
        for statement in SQLITE if connection.vendor == "sqlite" else POSTGRESQL:
            cursor.execute(statement)


def add(number: int, content: str) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("INSERT INTO bare_words (rowid, content) VALUES (%s, %s)", [number, content])
        else:
            cursor.execute("UPDATE bare_note SET words = to_tsvector('english', %s) WHERE id = %s", [content, number])


def add_all() -> None:
    """The full-text rows of all notes there are."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("INSERT INTO bare_words (bare_words) VALUES ('rebuild')")
        else:
            cursor.execute("UPDATE bare_note SET words = to_tsvector('english', content)")
            cursor.execute("ANALYZE bare_note")


def find(owner_id: int, query: str, limit: int) -> list[int]:
    """The notes with any of the words, best first."""
    words = re.findall(r"\w+", query)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(FOUND_SQLITE, [" OR ".join(f'"{word}"' for word in words), owner_id, limit])
        else:
            cursor.execute(FOUND_POSTGRESQL, [" | ".join(words), owner_id, limit])
        return [number for (number,) in cursor.fetchall()]
