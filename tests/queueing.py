"""The queue, looked into and worked off by the test itself: what a worker's processes do, without them."""

from __future__ import annotations

import pydoc
from typing import Any

from django_q.models import OrmQ
from django_q.signing import SignedPackage

Task = tuple[str, tuple[int, ...]]


def waiting() -> list[Task]:
    """The tasks that wait, oldest first: name and arguments."""
    return [_said(row) for row in OrmQ.objects.order_by("pk")]


def work() -> list[tuple[str, str]]:
    """Carry out what waits, and what is queued meanwhile: the names of the tasks and what they returned."""
    done = []
    while (row := OrmQ.objects.order_by("pk").first()) is not None:
        row.delete()
        done.append(carry_out(_said(row)))
    return done


def carry_out(task: Task) -> tuple[str, str]:
    name, numbers = task
    do: Any = pydoc.locate(name)
    return name.rpartition(".")[2], do(*numbers)


def _said(row: OrmQ) -> Task:
    task = SignedPackage.loads(row.payload)
    return task["func"], task["args"]
