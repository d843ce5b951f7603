"""The signal that is sent before a removal. Its receivers handle other places that may have the content, such as an
open session."""

from __future__ import annotations

from django.dispatch import Signal

removing = (
    Signal()
)  # arguments: `agent`, whose row is locked, and `why`: redaction or erasure. It is sent in the removal's transaction
