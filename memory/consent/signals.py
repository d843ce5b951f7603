"""Signals of removal, for content that is kept elsewhere than in memories and the trail, as in refinement sessions."""

from __future__ import annotations

from django.dispatch import Signal

removing = Signal()  # `agent`, its row locked; `why`: redaction or erasure. Sent in its transaction, before it
