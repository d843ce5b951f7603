"""The base of every domain error, with a stable code and a message without content.

Interfaces translate these in one place each: commands to standard error and an exit code, the API to an error response,
the admin to a message. No message may quote what a memory says.
"""

from __future__ import annotations

FAILED, USAGE, MODEL = 1, 2, 3  # exit codes of commands: failed; configuration or usage; the model


class DomainError(Exception):
    """An operation was refused or failed. `code` is stable; `str(error)` is for people."""

    code = "error"
    exit_code = FAILED  # of a command that ends with it


class ConfigurationError(DomainError):
    """The service is not set up for an operation. The message says what is missing and how to get it."""

    code = "configuration"
    exit_code = USAGE


class InvalidField(DomainError):
    """A value is wrong. The message names the field, what is wrong with it, and what is right."""

    code = "invalid"
    exit_code = USAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
