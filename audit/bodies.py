"""A snapshot's two halves: a head, which lasts, and a body, which a redaction takes away for good.

To this app a snapshot is bytes up to a first NUL, and bytes after it. Its digest is made of the head and of the body's
own digest, so that a chain can be verified without the body: the entry that redacted it names that digest.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


def digest(snapshot: bytes) -> bytes:
    """What the chain stands on, of a snapshot that has its body."""
    body = snapshot.find(b"\0") + 1 or len(snapshot)
    return digest_without(snapshot[:body], hashlib.sha256(snapshot[body:]).digest())


def digest_without(head: bytes, body: bytes) -> bytes:
    """The same, of a snapshot whose body's digest alone is known."""
    return hashlib.sha256(head + body).digest()


def body_digest(snapshot: bytes) -> bytes:
    return hashlib.sha256(snapshot[len(head(snapshot)) :]).digest()


def head(snapshot: bytes) -> bytes:
    """The first half, its NUL included: what is left of a snapshot that was redacted."""
    return snapshot[: snapshot.find(b"\0") + 1] or snapshot


def has_body(snapshot: bytes) -> bool:
    return len(head(snapshot)) < len(snapshot)


class Part(models.Func):
    """A part of the snapshots in a column, as the database takes it out. `sql`, by vendor, names the column {0}."""

    sql: ClassVar[dict[str, str]]
    output_field = models.BinaryField()

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **_: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.sql["sqlite"].format("%(expressions)s"))

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper, **_: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.sql["postgresql"].format("%(expressions)s"))


class Head(Part):
    """`head`. NULL stays NULL."""

    sql: ClassVar = {
        "sqlite": "substr({0}, 1, instr({0}, x'00'))",
        "postgresql": "substring({0} from 1 for position('\\x00'::bytea in {0}))",
    }
