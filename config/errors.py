"""The base of every domain error: a fact with a stable code and a message without content.

Edges translate these once: commands to standard error and an exit code, the API to a problem response,
the admin to a message. No message may quote what a memory says.
"""

from __future__ import annotations


class DomainError(Exception):
    """Something refused or failed for a reason worth telling. `code` is stable; `str(error)` is for people."""

    code = "error"


class ConfigurationError(DomainError):
    """The service is not set up for what was asked: says what is missing and how to get it."""

    code = "configuration"
