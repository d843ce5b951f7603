"""What is recorded is in the silo, and nowhere else."""

from __future__ import annotations

import json

from audit.models import AuditEntry
from memory.models import Agent
from tests.privacy.watch import Watch
from tests.rules.talking import off, overhear, settings, talk


def test_neither_content_nor_secrets_are_left_anywhere(watch: Watch, ada: Agent) -> None:
    settings(ada, auto_recording__enabled=True)
    secret = f"x{watch.marker}9"
    overhear(ada, watch.text("always drinks tea"), watch.text("noted"), topic=watch.marker, learnings=watch.marker)
    overhear(ada, f"Always remember that my password is {secret}", f"{secret}", session="next")
    overhear(ada, "hi")
    watch.attempt(lambda: overhear(ada, f"{watch.marker}\0"))
    off(ada, "user_interaction", auto_recording__enabled=True)
    overhear(ada, watch.text("always"))
    watch.attempt(lambda: talk(ada, watch.text("always")))
    assert watch.leaks() == []
    watch.run("remember", "record", "acme/ada", "--prompt", watch.text("remember"), "--topic", watch.marker)
    watch.run("remember", "session", "acme/ada", "list")
    watch.run("remember", "session", "acme/ada", "end", "next", "--goal", watch.marker)
    watch.run("remember", "topic", "acme/ada", watch.marker, "--insight", watch.marker)
    assert watch.leaks() == []
    details = json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))
    assert watch.marker not in details
