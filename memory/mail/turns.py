"""Turns of tasks: of all tasks with a name, one is in the queue or runs.

A task does a few steps and ends. It is queued again, behind the other tasks, if there is more to do. So letters,
sessions and webhooks of others wait for a few steps at most. If a worker is killed, its task is queued again later.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from config.queue import is_ending, put
from memory.models import Turn

LONGEST = timedelta(minutes=2)  # after this time without a step, the task is queued again
PAUSE = timedelta(minutes=1)  # after a step that is "away"
STEPS, TASK_SECONDS = 50, 10.0  # of a task; the last step can end later


def is_over(longest: timedelta) -> Q:
    """Whether a wait is over. A wait that ends too far in the future comes from a wrong clock."""
    now = timezone.now()
    return Q(wait_until__lte=now) | Q(wait_until__gt=now + longest)


def queue(name: str, task: str, *numbers: int) -> None:
    """Queue a task, unless it is queued or runs, or another transaction queues it now. Its last argument is the number
    of the turn."""
    with transaction.atomic():
        Turn.objects.get_or_create(name=name)
        rows = Turn.objects.filter(is_over(LONGEST), pk=name)
        for row in rows.select_for_update(skip_locked=True, no_key=True):
            rows.update(wait_until=timezone.now() + LONGEST)
            mine, now = Turn.objects.filter(pk=name, turn=row.turn), timezone.now()
            put(task, *numbers, row.turn, lost=partial(mine.update, wait_until=now))


def run(name: str, turn: int, step: Callable[[], str]) -> str:
    """Call `step` while it returns "sent". Return its last code. After "away", the next task waits.
    If the queue delivers the task twice, the second delivery does nothing."""
    if not Turn.objects.filter(pk=name, turn=turn).update(turn=turn + 1):
        return "taken"
    mine, until = Turn.objects.filter(pk=name, turn=turn + 1), time.monotonic() + TASK_SECONDS
    code = "sent"
    try:
        for _ in range(STEPS):
            if not mine.update(wait_until=timezone.now() + LONGEST):
                return "taken"
            if is_ending() or time.monotonic() > until or (code := step()) != "sent":
                break
    finally:  # also after an error
        mine.update(wait_until=timezone.now() + (PAUSE if code == "away" else timedelta()))
    return code
