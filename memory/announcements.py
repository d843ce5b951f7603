"""What is announced here when it happens, for the rooms above, which this one knows nothing of.

An announcement is made inside the transaction of what happened, and whoever listens is part of it.
"""

from __future__ import annotations

from django.dispatch import Signal

over_budget = Signal()  # `agent`, its row locked: an edit made it due, for its core memory outgrew its budget
