"""What can go wrong with the record."""

from __future__ import annotations

from config.errors import DomainError


class AuditError(DomainError):
    code = "audit"


class NotLocked(AuditError):
    """The trail was written to outside a transaction: a fault in the program, never in a request."""

    code = "not_locked"
