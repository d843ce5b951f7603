"""python -m tests.bench.sweeping SHARE: make so many in a hundred agents due, and sweep, in a process of its own.

Prints one line of JSON: the middle of three sweeps in seconds, how many MiB the resident peak of the first lay above
what the process held before, how many agents came into line, and how many statements it took. Started by
`tests.bench.due_bench`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from datetime import timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    import django

    django.setup()
    from django.db import connection
    from django.db.models.functions import Mod
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone
    from django_q.models import OrmQ

    from memory.models import Agent
    from refinement import backlog
    from refinement.models import Waiting
    from tests.bench.verifying import forget_peak, mebibytes

    Agent.objects.update(due_at=None)
    backlog.sweep()  # nobody is due: what is loaded on first use is here now
    now, longer_due = timezone.now(), timedelta(hours=1)
    in_hundred = Agent.objects.annotate(place=Mod("pk", 100))
    in_hundred.filter(place__lt=int(sys.argv[1])).update(due_at=now - longer_due)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE memory_agent")
    forget_peak()
    held, taken = mebibytes("VmRSS"), []
    came = grown = 0
    for number in range(3):
        Waiting.objects.all().delete()
        OrmQ.objects.all().delete()
        started = time.perf_counter()
        came = backlog.sweep()
        taken.append(time.perf_counter() - started)
        grown = mebibytes("VmHWM") - held if number == 0 else grown
    Waiting.objects.all().delete()
    OrmQ.objects.all().delete()
    with CaptureQueriesContext(connection) as captured:
        backlog.sweep()
    Waiting.objects.all().delete()
    in_hundred.filter(place__gt=0).update(due_at=now + timedelta(days=1))  # one in a hundred is due, as before
    seconds = statistics.median(taken)
    print(json.dumps({"seconds": seconds, "grown": grown, "came": came, "statements": len(captured)}))


if __name__ == "__main__":
    main()
