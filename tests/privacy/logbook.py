"""What the service logs, kept: every record of every logger down to DEBUG, written as the service writes it."""

from __future__ import annotations

import copy
import io
import logging
import logging.config
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection

# Silent by the service's settings; made to speak here, for they may hold what is sent to the database.
_QUIET = ("django.db.backends", "django.db.backends.schema", "django.request", "django.server", "palimpsest", "asyncio")


@dataclass
class Logbook:
    """`text` as the project's formatter writes it; `raw` with every record's message, arguments and further fields."""

    written: io.StringIO = field(default_factory=io.StringIO)
    records: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.written.getvalue()

    @property
    def raw(self) -> str:
        return "\n".join(self.records)


class _Keeper(logging.Handler):
    """Keeps all a record carries but its exception, which the project's formatter tells by type and place."""

    def __init__(self, book: Logbook) -> None:
        super().__init__(logging.DEBUG)
        self._book = book

    def emit(self, record: logging.LogRecord) -> None:
        kept = {name: value for name, value in record.__dict__.items() if name not in ("exc_info", "exc_text")}
        if isinstance(record.msg, dict):
            kept.pop("message", None)  # another handler's rendering of it
            kept["msg"] = {name: value for name, value in record.msg.items() if name != "exc_info"}
        self._book.records.append(f"{record.getMessage() if not isinstance(record.msg, dict) else ''} {kept!r}")


def formatter() -> logging.Formatter:
    """The formatter of the project's own handler."""
    # Copied, for making a formatter takes its description apart.
    described = copy.deepcopy(settings.LOGGING["formatters"]["json"])
    made = logging.config.dictConfigClass({}).configure_formatter(described)
    assert isinstance(made, logging.Formatter)
    return made


@contextmanager
def kept(level: int = logging.DEBUG) -> Iterator[Logbook]:
    """Everything logged in here, SQL with its parameters included."""
    book = Logbook()
    written = logging.StreamHandler(book.written)
    written.setFormatter(formatter())
    handlers: list[logging.Handler] = [written, _Keeper(book)]
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(name) for name in _QUIET)]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    forced = connection.force_debug_cursor
    for logger in loggers:
        logger.setLevel(level)
        logger.propagate = True
    for handler in handlers:
        root.addHandler(handler)
    connection.force_debug_cursor = level <= logging.DEBUG
    try:
        yield book
    finally:
        connection.force_debug_cursor = forced
        for handler in handlers:
            root.removeHandler(handler)
        for logger, was, propagated in before:
            logger.setLevel(was)
            logger.propagate = propagated
