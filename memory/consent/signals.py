"""A signal of removals, for content outside memories and audit trail, such as refinement sessions."""

from __future__ import annotations

from django.dispatch import Signal

removing = (
    Signal()
)  # `agent` with its row locked, and `why`: redaction or erasure. Sent in the transaction, before the removal
