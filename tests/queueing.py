"""The queue's tasks: list them, and run them without a worker process."""

import pydoc
from typing import Any

from django_q.models import OrmQ
from django_q.signing import SignedPackage

Task = tuple[str, tuple[int, ...]]


def waiting() -> list[Task]:
    """The name and the arguments of each waiting task, oldest first."""
    return [_task(row) for row in OrmQ.objects.order_by("pk")]


def work() -> list[tuple[str, str]]:
    """Run every task, also those that tasks add. Return the name and the result of each."""
    done = []
    while (row := OrmQ.objects.order_by("pk").first()) is not None:
        row.delete()
        done.append(carry_out(_task(row)))
    return done


def carry_out(task: Task) -> tuple[str, str]:
    name, arguments = task
    function: Any = pydoc.locate(name)
    return name.rpartition(".")[2], function(*arguments)


def _task(row: OrmQ) -> Task:
    package = SignedPackage.loads(row.payload)
    return package["func"], package["args"]
