"""What is read in place of a date, a time span, a number or a text that Python does not have.

No edit writes such a value, but SQL can: PostgreSQL has `infinity` and the year 20000, and SQLite stores any text as a
date, and any bytes as a text or a number. An error would also fail requests about other rows. If a signed row has such
a value, its signature is wrong. In other rows, `verify_audit` names it.
"""

from datetime import UTC, datetime, timedelta

NO_DATE = datetime(1900, 1, 1, tzinfo=UTC)  # in the past, so nothing is valid until then
NO_SPAN = timedelta(microseconds=1)
NO_TEXT, NO_NUMBER = "\N{REPLACEMENT CHARACTER}", -1  # no empty values, so that a signature is wrong


def is_unreadable(value: object) -> bool:
    """Whether the value was read in place of another. An equal value that a client stored is another object."""
    return value is NO_DATE or value is NO_SPAN
