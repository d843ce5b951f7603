"""The base of every domain error: a fact with a stable code and a message without content.

Interfaces translate these in one place each: commands to standard error and an exit code, the API to an error response,
the admin to a message. No message may quote what a memory says.
"""

from __future__ import annotations

from typing import ClassVar

FAILED, USAGE, MODEL = 1, 2, 3  # exit codes of commands: failed; configuration or usage; the model


class DomainError(Exception):
    """Something refused or failed for a reason worth telling. `code` is stable; `str(error)` is for people."""

    code = "error"
    exit_code: ClassVar[int] = FAILED  # of a command that ends with it


class ConfigurationError(DomainError):
    """The service is not set up for what was asked: says what is missing and how to get it."""

    code = "configuration"
    exit_code = USAGE


class InvalidField(DomainError):
    """A value that is wrong: names the field, what is wrong with it and what would be right."""

    code = "invalid"
    exit_code = USAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
