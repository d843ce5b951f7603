"""Signals of the write path. Other modules receive these signals, so the write path does not import those modules.

Signals are sent inside the edit's transaction. If a receiver raises an exception, the edit is rolled back.
"""

from django.dispatch import Signal

# Sent by every edit. `agent`: the locked row. `seq`: the number of the audit entry. `memories`: the memories as they
# will be written. `are_new`: whether all of them are new.
edited = Signal()
# Sent if an edit makes refinement due because core memory exceeds the budget. `agent`: the locked row.
over_budget = Signal()
