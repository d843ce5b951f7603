"""The floor: plain SQL that keeps the same texts in clear, with a full-text row and an audit row, just as durable.

It seals nothing, chains nothing, counts nothing and checks nothing: what a database can do at best. One transaction
holds a row, its FTS5 row (`tsvector` column with a GIN index on PostgreSQL) and its audit row, which names the edit
and, unlike ours, keeps no copy of the text. On SQLite it has a file of its own beside the service's, so that neither
pays for the other's checkpoints; on PostgreSQL tables of its own in the same database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SQLITE = """
CREATE TABLE m (id INTEGER PRIMARY KEY, agent INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
    origin TEXT NOT NULL, created_at TEXT NOT NULL, tokens INTEGER NOT NULL, content TEXT NOT NULL,
    UNIQUE (agent, number));
CREATE VIRTUAL TABLE f USING fts5(content, content='m', content_rowid='id', tokenize='porter unicode61');
CREATE TABLE a (id INTEGER PRIMARY KEY, agent INTEGER NOT NULL, seq INTEGER NOT NULL, at TEXT NOT NULL,
    actor TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, UNIQUE (agent, seq));
"""
SQLITE_MEMORY = "INSERT INTO m VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SQLITE_WORDS = "INSERT INTO f (rowid, content) VALUES (?, ?)"
SQLITE_ENTRY = "INSERT INTO a (agent, seq, at, actor, operation, number) VALUES (?, ?, ?, ?, ?, ?)"
POSTGRESQL = """
CREATE TABLE floor_m (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, agent bigint NOT NULL,
    number bigint NOT NULL, kind text NOT NULL, origin timestamptz NOT NULL, created_at timestamptz NOT NULL,
    tokens int NOT NULL, content text NOT NULL, words tsvector NOT NULL, UNIQUE (agent, number));
CREATE INDEX ON floor_m USING gin (words);
CREATE TABLE floor_a (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, agent bigint NOT NULL, seq bigint NOT NULL,
    at timestamptz NOT NULL, actor text NOT NULL, operation text NOT NULL, number bigint NOT NULL, UNIQUE (agent, seq));
"""
MEMORY = """INSERT INTO floor_m (agent, number, kind, origin, created_at, tokens, content, words)
    VALUES (%s, %s, %s, %s, %s, %s, %s, to_tsvector('english', %s))"""
ENTRY = "INSERT INTO floor_a (agent, seq, at, actor, operation, number) VALUES (%s, %s, %s, %s, %s, %s)"
TABLES = ("floor_m", "floor_a")


def floor() -> SqliteFloor | PostgresqlFloor:
    return SqliteFloor() if connection.vendor == "sqlite" else PostgresqlFloor()


class SqliteFloor:
    """Through Python's own sqlite3, the settings' pragmas set."""

    def __init__(self) -> None:
        path = Path(settings.DATABASES["default"]["NAME"]).with_name("floor.sqlite3")
        self._db = sqlite3.connect(path, isolation_level=None)
        self._path = path
        self._db.executescript(settings.DATABASES["default"]["OPTIONS"]["init_command"] + SQLITE)
        assert self._db.execute("PRAGMA synchronous").fetchone() == (2,)
        self.number = 0

    def store(self, text: str) -> None:
        """One text in one transaction."""
        memory, words, entry = self._rows(text)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(SQLITE_MEMORY, memory)
        self._db.execute(SQLITE_WORDS, words)
        self._db.execute(SQLITE_ENTRY, entry)
        self._db.execute("COMMIT")

    def store_batches(self, texts: Sequence[str], batch: int) -> None:
        """All of them in one transaction, so many rows a statement."""
        self._db.execute("BEGIN IMMEDIATE")
        for place in range(0, len(texts), batch):
            memories, words, entries = zip(*map(self._rows, texts[place : place + batch]), strict=True)
            self._db.executemany(SQLITE_MEMORY, memories)
            self._db.executemany(SQLITE_WORDS, words)
            self._db.executemany(SQLITE_ENTRY, entries)
        self._db.execute("COMMIT")

    def _rows(self, text: str) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        self.number += 1
        n, at = self.number, NOW.isoformat()
        return (n, 1, n, "core", at, at, len(text) // 4, text), (n, text), (1, n, at, "agent", "remembered", n)

    def drop(self) -> None:
        self._db.close()
        self._path.unlink()

    def size(self) -> int:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [[pages, each]] = self._db.execute("SELECT * FROM pragma_page_count, pragma_page_size").fetchall()
        return int(pages * each)


class PostgresqlFloor:
    """Through psycopg, which prepares what it sees often; batches pipelined."""

    def __init__(self) -> None:
        self._db = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self._db.execute(POSTGRESQL)
        self.number = 0

    def store(self, text: str) -> None:
        memory, entry = self._rows(text)
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.execute(MEMORY, memory)
            cursor.execute(ENTRY, entry)

    def store_batches(self, texts: Sequence[str], batch: int) -> None:
        with self._db.transaction(), self._db.cursor() as cursor:
            for place in range(0, len(texts), batch):
                memories, entries = zip(*map(self._rows, texts[place : place + batch]), strict=True)
                cursor.executemany(MEMORY, memories)
                cursor.executemany(ENTRY, entries)

    def _rows(self, text: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        self.number += 1
        n = self.number
        return (1, n, "core", NOW, NOW, len(text) // 4, text, text), (1, n, NOW, "agent", "remembered", n)

    def drop(self) -> None:
        self._db.execute("DROP TABLE floor_m, floor_a")
        self._db.close()

    def size(self) -> int:
        return relation_sizes(TABLES)


def relation_sizes(tables: Sequence[str]) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(%s::text[]) AS t", [list(tables)])
        return int(cursor.fetchone()[0])
