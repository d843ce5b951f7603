"""How far the walks of state machines go. Each step of one is real, with a database and often with files."""

from __future__ import annotations

from django.db import connection
from hypothesis import settings

QUICK = 25  # examples of the profile that tests run with unless told otherwise (tests/conftest.py)


def walks(usual: int, *, steps: int) -> settings:
    """So many walks of so many steps: `usual` of them on SQLite, and half on PostgreSQL, where a step takes three times
    as long; with a more thorough profile as many as that says."""
    thorough = settings().max_examples
    few = usual if connection.vendor == "sqlite" else (usual + 1) // 2
    return settings(max_examples=few if thorough <= QUICK else thorough, stateful_step_count=steps, deadline=None)
