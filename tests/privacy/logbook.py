"""A copy of the log: every record of every logger down to DEBUG, in the format of the service."""

import copy
import io
import logging
import logging.config
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection

# The service's settings silence these loggers. Here they log, because they may contain the parameters of SQL.
_QUIET = ("django.db.backends", "django.db.backends.schema", "django.request", "django.server", "palimpsest", "asyncio")


@dataclass
class Logbook:
    """`text` as the project's formatter writes it; `raw` with every record's message, arguments and extra fields."""

    written: io.StringIO = field(default_factory=io.StringIO)
    records: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.written.getvalue()

    @property
    def raw(self) -> str:
        return "\n".join(dict.fromkeys(self.records))


def is_statement(record: logging.LogRecord) -> bool:
    return record.name == "django.db.backends" and hasattr(record, "params")  # it has both five times


class _Recorder(logging.Handler):
    """Stores everything in a record except its exception, which the formatter reduces to its type and place."""

    def __init__(self, book: Logbook) -> None:
        super().__init__(logging.DEBUG)
        self._book = book

    def emit(self, record: logging.LogRecord) -> None:
        if is_statement(record):
            self._book.records.append(f"{record.sql!r} {record.params!r}")  # type: ignore[attr-defined]
            return
        fields = {name: value for name, value in record.__dict__.items() if name not in ("exc_info", "exc_text")}
        if isinstance(record.msg, dict):
            fields.pop("message", None)  # another handler has set it
            fields["msg"] = {name: value for name, value in record.msg.items() if name != "exc_info"}
        self._book.records.append(f"{record.getMessage() if not isinstance(record.msg, dict) else ''} {fields!r}")


def formatter() -> logging.Formatter:
    """The formatter of the project's handler."""
    configuration = copy.deepcopy(settings.LOGGING["formatters"]["json"])  # a copy, because `logging` changes it
    made = logging.config.dictConfigClass({}).configure_formatter(configuration)
    assert isinstance(made, logging.Formatter)
    return made


@contextmanager
def kept(level: int = logging.DEBUG) -> Iterator[Logbook]:
    """Record everything that is logged in the block, including SQL with its parameters."""
    book = Logbook()
    written = logging.StreamHandler(book.written)
    written.setFormatter(formatter())
    handlers: list[logging.Handler] = [written, _Recorder(book)]
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
        for logger, old_level, propagate in before:
            logger.setLevel(old_level)
            logger.propagate = propagate
