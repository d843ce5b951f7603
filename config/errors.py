"""The base of all domain errors. Each has a stable code and a message.

Commands print the message to standard error and return an exit code. The API returns the message in an error response.
The admin shows the message. No message may quote the content of a memory.
"""

FAILED, USAGE, MODEL = 1, 2, 3  # exit codes of commands: failed; configuration or usage; the model


class DomainError(Exception):
    """An operation was refused or failed. `code` is for programs, `str(error)` for people. An error that has always the
    same message has it in its class."""

    code, message = "error", ""
    exit_code = FAILED  # of a command that ends with this error

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.message)


class ConfigurationError(DomainError):
    """The service is not configured for an operation. The message says what is missing and what to do."""

    code = "configuration"
    exit_code = USAGE


class Busy(DomainError):
    """Other requests of the tenant do the same work at the moment. Try again."""

    code = "throttled"


class InvalidField(DomainError):
    """A value is invalid. The message names the field, the problem, and what is allowed."""

    code = "invalid"
    exit_code = USAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
