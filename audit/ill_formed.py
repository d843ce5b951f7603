"""Values of a wrong type or form. No edit writes such a value, but SQL can put it into a row."""

from typing import Any, TypeVar

from django.db import DatabaseError, DataError

T = TypeVar("T")

ILL_FORMED = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, RecursionError, DatabaseError)
ILL_FORMED_ROW = "a row has a value of a wrong type or form"


class ill_formed:  # noqa: N801  it reads as a statement
    """A context manager that catches the errors of ill-formed values. It gives a list, which is not empty after an
    error.

    No edit writes such a value, but SQL can put it into a row. SQLite stores any type in any column, and PostgreSQL has
    dates that Python does not have. (`contextlib.contextmanager` would be four times slower, and this context manager
    is used twice for each entry.)
    """

    def __enter__(self) -> list[bool]:
        self._found: list[bool] = []
        return self._found

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not is_ill_formed(error):
            return False
        self._found.append(True)
        return True


def is_ill_formed(error: BaseException | None) -> bool:
    """Whether the error comes from a bad value, and not from the database itself. A bad value is a date that Python
    does not have, or text that is not UTF-8."""
    is_database = isinstance(error, DatabaseError) and not isinstance(error, DataError)
    return isinstance(error, ILL_FORMED) and (not is_database or "decode to UTF-8" in str(error))


def typed(kind: type[T], value: object) -> T:
    """The value, if it has exactly this type. (In Python, a boolean is an integer.) Raises TypeError for other types,
    because SQLite stores any type in any column, and an entry's `detail` has any JSON."""
    if type(value) is not kind:
        raise TypeError
    return value


def binary(value: Any) -> bytes:
    """The value as bytes. Raises TypeError for other types. (For a number n, `bytes(n)` would create n zeros.)"""
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    raise TypeError


def binary_or_none(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else binary(value)
