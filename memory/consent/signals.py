"""The signal before a removal. Receivers handle content outside memories and audit trail, such as open sessions."""

from __future__ import annotations

from django.dispatch import Signal

removing = (
    Signal()
)  # arguments: `agent`, whose row is locked, and `why`: redaction or erasure. It is sent in the removal's transaction
