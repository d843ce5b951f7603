"""Logs: one JSON object per line on standard error, with ids and numbers, never with content."""

import sys
import traceback
from typing import Any

import structlog
from structlog.typing import EventDict

from config.database import FULL, advice
from config.request_metrics import method_and_route


def _place_of_exception(_: Any, __: str, event: EventDict) -> EventDict:
    """Log only the type of an exception, and where in the code it was raised, and whether a disk is full. The text of
    the exception may quote the input."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    elif isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and info[0] is not None:
        event["exception"] = info[0].__name__
        event.update({"reason": FULL} if advice(info[1]) == FULL else {})
        event["at"] = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(info[2])[-8:]]
    return event


def _no_request_line(_: Any, __: str, event: EventDict) -> EventDict:
    """Remove the path and headers from Django's own log lines, because they may contain anything. Remove the place of
    the exception with which a request was refused, because this is not a fault of the service."""
    record = event.get("_record")
    if record is not None and record.name.startswith(("django.request", "django.security", "django.server")):
        event["event"] = f"HTTP {record.status_code}" if hasattr(record, "status_code") else "a request was refused"
        if getattr(record, "status_code", 500) < 500:
            event.pop("exc_info", None)
        request: Any = getattr(record, "request", None)
        if getattr(request, "method", None):
            event["method"], event["route"] = method_and_route(request)
    return event


def _no_result(_: Any, __: str, event: EventDict) -> EventDict:
    """Remove results and exceptions from the queue's own log lines."""
    record = event.get("_record")
    if record is not None and record.name == "django-q":
        event["event"] = record.getMessage().partition(" - ")[0] if isinstance(record.msg, str) else "it failed"
    return event


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _SHARED,
            "processors": [
                _no_request_line,
                _no_result,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _place_of_exception,
                structlog.processors.JSONRenderer(),
            ],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "palimpsest": {"level": "INFO"},
        # SQL parameters and request lines may contain content, so these loggers are off at every level.
        "django.db.backends": {"level": "CRITICAL", "propagate": False},
        "psycopg": {"level": "CRITICAL"},  # psycopg logs errors that it cannot raise, and quotes the row
        "httpx": {"level": "WARNING"},  # these libraries log addresses at INFO and response headers at DEBUG
        "httpcore": {"level": "WARNING"},
    },
}

structlog.configure(
    processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
