"""The queue's tasks: list them, and run them without a worker process."""

import pydoc
from typing import Any
from unittest import mock

from django_q.models import OrmQ
from django_q.signing import SignedPackage

from config.queue import SEND_LETTERS
from memory.mail import outbox
from memory.models import Letter

Task = tuple[str, tuple[int, ...]]


def waiting() -> list[Task]:
    """The name and the arguments of each waiting task, oldest first."""
    return [_task(row) for row in OrmQ.objects.order_by("pk")]


def letters() -> list[tuple[int, int, int]]:
    """The kind, the agent and the number of each waiting letter, oldest first."""
    return list(Letter.objects.order_by("pk").values_list("kind", "agent_id", "number"))


def work() -> list[tuple[str, str]]:
    """Run every task, also those that tasks add. Return the name and the result of each. In the place of a task that
    sends letters are the kind and the result of each letter."""
    done, attempt = [], outbox._attempt

    def noted(letter: Letter, *more: Any) -> str:
        code = attempt(letter, *more)
        done.append((str(letter.get_kind_display()).lower(), code))
        return code

    with mock.patch.object(outbox, "_attempt", noted):
        while OrmQ.objects.exists():
            task = take()
            done += [each for each in [carry_out(task)] if task[0] != SEND_LETTERS]
    return done


def take() -> Task:
    """Remove the oldest task from the queue."""
    row = OrmQ.objects.earliest("pk")
    row.delete()
    return _task(row)


def carry_out(task: Task) -> tuple[str, str]:
    name, arguments = task
    function: Any = pydoc.locate(name)
    return name.rpartition(".")[2], function(*arguments)


def _task(row: OrmQ) -> Task:
    package = SignedPackage.loads(row.payload)
    return package["func"], package["args"]
