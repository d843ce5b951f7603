"""Everything that may contain a marker, collected during a test and searched at its end."""

import contextlib
import json
import logging
import pickle
import subprocess
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
from django.apps import apps
from django.core.cache import cache
from django.db import OperationalError, connection

from tests.commands.calling import Ran, run
from tests.privacy import leaks, logbook
from tests.privacy.leaks import Leak
from tests.privacy.logbook import Logbook
from tests.privacy.marker import MARKER, unique

FAULTS = ("the database", "seal_data", "open_data", "digest")


@dataclass
class Watch:
    """A marker, and what the test has written, logged and raised."""

    log: Logbook
    marker: str = field(default_factory=unique)
    outputs: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    warned: list[warnings.WarningMessage] = field(default_factory=list)

    def text(self, *words: str) -> str:
        """Content with the marker."""
        return f"{self.marker} {' '.join(words) or 'drinks tea'}"

    def run(self, name: str, *args: str, stdin: bytes = b"") -> Ran:
        """Run a command whose output must not contain the marker."""
        ran = run(name, *args, stdin=stdin)
        self.outputs.append(f"{name}: {ran.out}{ran.err}")
        return ran

    def response(self, response: Any) -> Any:
        """Note a response, which must not contain the marker, nor must its headers."""
        cookies = getattr(response, "cookies", "")
        self.outputs.append(f"{response.content!r} {dict(response.headers)!r} {cookies!r}")
        return response

    def attempt(self, act: Callable[[], Any]) -> Any:
        """Call it. Store an exception, and log it as a careless caller would."""
        try:
            return act()
        except Exception as error:
            self.errors.append(error)
            structlog.get_logger("palimpsest.careless").exception("it failed", why=str(error))
            logging.getLogger("careless").exception("it failed: %s %r", error, error)
            return None

    def refused(self, act: Callable[[], Any]) -> None:
        """As `attempt`, for a call that must fail."""
        before = len(self.errors)
        self.attempt(act)
        assert len(self.errors) == before + 1, "it was allowed"

    def leaks(self, *, stored: bool = True) -> list[Leak]:
        """Where the marker is. Without `stored`, the database and the cache are not searched."""
        sources = [*self._collected(), *(kept() if stored else ())]
        return [leak for where, value in sources for leak in leaks.find_in_value(value, self.marker, where)]

    def _collected(self) -> Iterator[tuple[str, str | bytes]]:
        yield "the log", self.log.text
        yield "the log's records", self.log.raw
        yield from (("an output", output) for output in self.outputs)
        yield from (("an exception", text) for error in self.errors for text in told_by(error))
        yield from (("a warning", str(warning.message)) for warning in self.warned)


def told_by(error: BaseException) -> Iterator[str]:
    """All the text in an exception, its causes and its contexts, including suppressed ones."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException] = []
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or link in seen:
            continue
        seen.append(link)
        yield f"{link} {link!r} {link.args!r} {getattr(link, '__notes__', '')!r}"
        yield f"{ {name: value for name, value in vars(link).items() if not name.startswith('__')}!r}"
        yield f"{getattr(link, 'object', '')!r} {getattr(link, 'doc', '')!r}"  # the input of a decoder
        chain += [link.__cause__, link.__context__]


def kept() -> Iterator[tuple[str, bytes]]:
    """Everything stored: the files and rows of the database, instances as a queue pickles them, and the cache."""
    for file in database_files():
        yield file.name, content_of(file)
    yield from tables()
    for model in (each for each in apps.get_models() if each._meta.app_label != "auth"):  # each name is a query
        rows = [pickle.dumps(row) + f"{row} {row!r} {row.__dict__!r}".encode() for row in model._default_manager.all()]
        yield f"{model.__name__}, pickled and as text", b"\n".join(rows)
    yield "the cache", cached()


def database_files() -> list[Path]:
    if connection.vendor != "sqlite":
        return []
    names = (f"{connection.settings_dict['NAME']}{side}" for side in ("", "-wal", "-shm", "-journal"))
    return [Path(name) for name in names if Path(name).is_file()]


LARGE = 4 << 20  # bytes


def shrink() -> None:
    """Make large files of SQLite small again. Otherwise each later search would read what one large test deleted."""
    if sum(file.stat().st_size for file in database_files()) > LARGE:
        with connection.cursor() as cursor:
            cursor.execute("VACUUM")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def content_of(file: Path) -> bytes:
    """The content of a database file, or nothing if the last process to close it has removed it.

    Another process reads it. If this process opened and closed the file, POSIX would release SQLite's locks on it, and
    another process could then end the write-ahead log that this process uses.
    """
    return subprocess.run(["cat", "--", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def tables() -> Iterator[tuple[str, bytes]]:
    """The rows of each table, every value as bytes; on PostgreSQL also as COPY writes them."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            values = [_as_bytes(value) for row in cursor.fetchall() for value in row]
            yield table, b"\n".join(values)


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode("utf-8", "surrogatepass")


def cached() -> bytes:
    """The keys and values of the cache, in its own form."""
    store: Any = cache._cache  # type: ignore[attr-defined]
    if isinstance(store, dict):
        return pickle.dumps(dict(store)) + repr(store).encode()
    client = store.get_client()
    return b"\n".join(part for key in client.scan_iter() for part in (key, client.dump(key) or b""))


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Collect logs and warnings in the block. After it, `leaks` searches them."""
    _truncate_the_write_ahead_log()
    with logbook.kept() as log, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield Watch(log, warned=warned)


def _truncate_the_write_ahead_log() -> None:
    """So that it has only this test's writes. First search what other tests have written there."""
    for file in database_files():
        earlier = leaks.find(content_of(file), MARKER, file.name, depth=0)
        assert earlier == [], "an earlier test left this behind"
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Fault(Exception):
    """An error outside the program's control, with all its data in its message."""


@contextlib.contextmanager
def failing(fault: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block, a function of the silo or the database fails. Its error contains the arguments or the SQL."""
    from memory.silo.silo import Silo

    def fail_database(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "memory_memory" in sql or "audit_" in sql:
            raise OperationalError(f"{sql} {params!r}")
        return execute(sql, params, many, context)

    def fail_silo(_: object, *args: object) -> bytes:
        raise Fault(repr(args))

    with contextlib.ExitStack() as stack:
        if fault == "the database":
            stack.enter_context(connection.execute_wrapper(fail_database))
        else:
            stack.enter_context(monkeypatch.context()).setattr(Silo, fault, fail_silo)
        yield
