"""Texts that say why the database cannot be used. They never quote the error: it may contain content or a password."""

import re

from config import PROGRAM

FULL = "the disk of VAR_DIR is full: make space on this disk."
_CAUSES = {  # the text, and a pattern of the error that shows this cause
    FULL: "database or disk is full|SQLITE_IOERR_SHMSIZE",
    "the SQLite file cannot be written: check the owner and mode of VAR_DIR, and whether its disk is read-only.": (
        "readonly database|unable to open database file"
    ),
    "the server does not answer: check that it runs, and the address in DATABASE_URL.": "Connection refused",
    "the host name in DATABASE_URL is unknown.": "failed to resolve host",
    "the database in DATABASE_URL does not exist: create it.": 'FATAL:  database "[^"]*" does not exist',
    "the server starts, stops or accepts no connections: wait, or look at its log.": "accepting conn|ing (up|down)",
    "the server refuses the user or the password in DATABASE_URL.": 'FATAL:  (role "|password)',
    f"run '{PROGRAM} migrate', and check DATABASE_URL.": "ProgrammingError|no such",  # table or column
    "check that it runs, that DATABASE_URL is right, and that VAR_DIR is writable.": "",
}


def advice(error: BaseException) -> str:
    """The cause of a database error, if it is known, and what to do."""
    text = f"{error!r} {error.__cause__!r} {getattr(error.__cause__, 'sqlite_errorname', None)}"
    return next(cause for cause, pattern in _CAUSES.items() if re.search(pattern, text))
