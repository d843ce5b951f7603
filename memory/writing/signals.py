"""Signals of the write path, so that it need not import their receivers.

They are sent inside the edit's transaction. A receiver is part of it, and its exception rolls the edit back.
"""

from __future__ import annotations

from django.dispatch import Signal

# `agent`: its locked row; `seq`: of the entry; `memories`: as they will be written; `are_new`: whether all are new.
edited = Signal()
# `agent`: its locked row. The edit made it due, because its core memory exceeds its budget.
over_budget = Signal()
