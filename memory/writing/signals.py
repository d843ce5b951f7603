"""Signals of the write path, for parts of the service that it knows nothing of.

Each is sent inside the edit's transaction: what a receiver does is part of it, and what it raises takes the edit back.
"""

from __future__ import annotations

from django.dispatch import Signal

edited = (
    Signal()
)  # `agent`, its row locked; `seq` of the entry; `memories` as they will be written; `are_new`: all of them
over_budget = Signal()  # `agent`, its row locked: an edit made it due, for its core memory outgrew its budget
