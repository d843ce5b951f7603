"""Everything a marker could leak to, gathered while a test runs its roads, and searched at the end."""

from __future__ import annotations

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

import structlog
from django.apps import apps
from django.core.cache import cache
from django.db import connection

from tests.commands.calling import Ran, run
from tests.privacy import leaks, logbook
from tests.privacy.leaks import Leak
from tests.privacy.logbook import Logbook
from tests.privacy.marker import MARKER, unique

_SIDES = ("", "-wal", "-shm", "-journal")


@dataclass
class Watch:
    """A marker, and what has been said and kept while it was about."""

    log: Logbook
    marker: str = field(default_factory=unique)
    outputs: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    warned: list[warnings.WarningMessage] = field(default_factory=list)

    def text(self, *words: str) -> str:
        """Content that bears the marker."""
        return f"{self.marker} {' '.join(words) or 'drinks tea'}"

    def run(self, name: str, *args: str, stdin: bytes = b"") -> Ran:
        """A command, whose output is watched."""
        ran = run(name, *args, stdin=stdin)
        self.outputs.append(f"{name}: {ran.out}{ran.err}")
        return ran

    def attempt(self, act: Callable[[], Any]) -> Any:
        """Call it; what it raises is kept, and logged the way a careless caller would."""
        try:
            return act()
        except Exception as error:
            self.errors.append(error)
            structlog.get_logger("palimpsest.careless").exception("it failed", why=str(error))
            logging.getLogger("careless").exception("it failed: %s %r", error, error)
            return None

    def refused(self, act: Callable[[], Any]) -> None:
        """As `attempt`, for what must fail."""
        before = len(self.errors)
        self.attempt(act)
        assert len(self.errors) == before + 1, "it was allowed"

    def leaks(self) -> list[Leak]:
        return [
            leak for where, value in [*self._said(), *kept()] for leak in leaks.find_in_value(value, self.marker, where)
        ]

    def _said(self) -> Iterator[tuple[str, str | bytes]]:
        yield "the log", self.log.text
        yield "the log's records", self.log.raw
        yield from (("a command", output) for output in self.outputs)
        yield from (("an exception", told) for error in self.errors for told in told_by(error))
        yield from (("a warning", str(warning.message)) for warning in self.warned)


def told_by(error: BaseException) -> Iterator[str]:
    """All that an exception tells whoever prints it, or keeps it: causes and contexts, suppressed ones too."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException] = []
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or link in seen:
            continue
        seen.append(link)
        yield f"{link} {link!r} {link.args!r} {getattr(link, '__notes__', '')!r}"
        yield f"{ {name: value for name, value in vars(link).items() if not name.startswith('__')}!r}"
        for name in ("object", "doc"):  # what a decoder could not read
            yield f"{getattr(link, name, '')!r}"
        links += [link.__cause__, link.__context__]


def kept() -> Iterator[tuple[str, bytes]]:
    """All that is kept: the database as files and as rows, instances as a queue would pickle them, the cache."""
    for file in database_files():
        yield file.name, said_by(file)
    yield from tables()
    for model in apps.get_models():
        shown = [pickle.dumps(row) + f"{row} {row!r} {row.__dict__!r}".encode() for row in model._default_manager.all()]
        yield f"{model.__name__}, pickled and shown", b"\n".join(shown)
    yield "the cache", cached()


def database_files() -> list[Path]:
    if connection.vendor != "sqlite":
        return []
    name = str(connection.settings_dict["NAME"])
    return [Path(name + side) for side in _SIDES if Path(name + side).is_file()]


def said_by(file: Path) -> bytes:
    """What a file of the database holds; nothing once another process, the last to close it, has taken it away.

    Read by a process of its own: when this one closed the file, POSIX would take away the locks that SQLite has on it,
    and another process that uses the database could end its log of writes under this one.
    """
    return subprocess.run(["cat", "--", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def tables() -> Iterator[tuple[str, bytes]]:
    """Each table's rows, every value as bytes; on PostgreSQL as COPY would write them too."""
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
    """What the cache holds, keys and values, as it holds them."""
    store: Any = cache._cache  # type: ignore[attr-defined]
    if isinstance(store, dict):
        return pickle.dumps(dict(store)) + repr(store).encode()
    client = store.get_client()
    return b"\n".join(part for key in client.scan_iter() for part in (key, client.dump(key) or b""))


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Logs and warnings are gathered in here, and after it `leaks` tells what became of them."""
    _begin_the_log_of_writes_anew()
    with logbook.kept() as log, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield Watch(log, warned=warned)


def _begin_the_log_of_writes_anew() -> None:
    """So that it is this test's own. What other tests wrote there is looked through first: it is gone afterwards."""
    for file in database_files():
        earlier = leaks.find(said_by(file), MARKER, file.name, depth=0)
        assert earlier == [], "an earlier test left this behind"
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
