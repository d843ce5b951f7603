"""Django's connection to SQLite. It adds the SQL function `from_base64`, reads any value of a date, a number or a text
without an error (see `config.unreadable`), and waits for locks in its own way.

In SQLite itself, the pause of a waiting writer becomes longer after each attempt, up to 0.1 s. Other writers that came
later can take the lock first. Under load, one write in a hundred takes twenty times as long as a usual write. Also, a
connection that waits inside SQLite keeps its mutex. If the garbage collector of the thread that has the lock then frees
a cursor of this connection, both wait for each other until the timeout. Here each statement waits outside SQLite, in
the same short steps, with the same timeout.
"""

import base64
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from django.db.backends.sqlite3 import base, features, operations
from django.db.models import CharField, DecimalField, IntegerField, TextField
from django.db.models.expressions import Col
from django.utils.dateparse import parse_date, parse_datetime

from config.unreadable import NO_DATE, NO_NUMBER, NO_SPAN, NO_TEXT

T = TypeVar("T")
STEP = 0.001  # seconds
MAX_DECIMAL = 1e6


class DatabaseFeatures(features.DatabaseFeatures):
    max_query_params = 32_766  # since SQLite 3.32; Django assumes the 999 of older versions


class DatabaseOperations(operations.DatabaseOperations):
    def get_db_converters(self, expression: Any) -> list[Any]:
        field, first = expression.output_field, list[Any]()
        if isinstance(field, CharField | TextField):
            first = [_text]
        elif isinstance(field, IntegerField) and isinstance(expression, Col):  # an expression may give a fraction
            first = [_whole]
        elif isinstance(field, DecimalField):
            first = [_decimal]
        return first + super().get_db_converters(expression)

    def convert_datetimefield_value(self, value: Any, *_: Any) -> datetime | None:
        if value is None:
            return None
        try:
            found = parse_datetime(value)
        except (TypeError, ValueError):
            return NO_DATE
        # SQL compares the texts. So of each date, only the text that Django writes is read.
        return found.replace(tzinfo=UTC) if found and not found.tzinfo and str(found) == value else NO_DATE

    def convert_datefield_value(self, value: Any, *_: Any) -> date | None:
        return _read(parse_date, value, NO_DATE.date())

    def convert_durationfield_value(self, value: Any, *_: Any) -> timedelta | None:
        return _read(partial(timedelta, 0, 0), value, NO_SPAN)


def _read(parse: Callable[[Any], T | None], value: Any, otherwise: T) -> T | None:
    if value is None:
        return None
    try:
        found = parse(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return otherwise if found is None else found


def _text(value: Any, *_: Any) -> Any:
    return NO_TEXT if isinstance(value, bytes) else value


def _whole(value: Any, *_: Any) -> Any:
    return value if value is None or isinstance(value, int) else NO_NUMBER


def _decimal(value: Any, *_: Any) -> Any:
    return value if value is None or (isinstance(value, int | float) and abs(value) < MAX_DECIMAL) else NO_NUMBER


class DatabaseWrapper(base.DatabaseWrapper):
    features_class, ops_class = DatabaseFeatures, DatabaseOperations
    step: float | None = None  # seconds, if this connection waits in longer steps
    patience: float | None = None  # seconds, if this connection waits for less than the timeout (audit/waiting.py)

    def get_connection_params(self) -> dict[str, Any]:
        """The values stay as they are in the database. The fields convert them, so also those of wrong types."""
        return super().get_connection_params() | {"detect_types": 0}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.create_function("from_base64", 1, _from_base64, deterministic=True)
        connection.execute("PRAGMA busy_timeout = 0")
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        return connection

    def create_cursor(self, *_: Any) -> Any:
        cursor = self.connection.cursor(factory=Cursor)
        cursor.database = self
        return cursor


class Cursor(base.SQLiteCursorWrapper):
    database: DatabaseWrapper

    def execute(self, *given: Any) -> Any:
        """Execute a statement, and again while it has to wait for a lock, until the connection's timeout is over.
        Raises sqlite3.OperationalError."""
        until: float | None = None
        while True:
            try:
                return super().execute(*given)
            except sqlite3.OperationalError as failure:
                timeout = self.database.settings_dict["OPTIONS"].get("timeout", 5)
                seconds = float(timeout if self.database.patience is None else self.database.patience)
                until = time.monotonic() + seconds if until is None else until
                if time.monotonic() >= until or not _waits(failure):
                    raise
            time.sleep(self.database.step or STEP)


def _waits(failure: sqlite3.OperationalError) -> bool:
    """Whether another connection has the lock. If the transaction reads an older state, it would wait in vain."""
    code = getattr(failure, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY and code != sqlite3.SQLITE_BUSY_SNAPSHOT


def _from_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
