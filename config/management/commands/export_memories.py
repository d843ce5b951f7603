"""Give an agent's side its memories; or a person those that a grant covers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory import consented, covered, grant_tokens
from memory.access import agent_named, is_key_of
from memory.errors import Invalid, KeyRejected
from memory.formats import jsonl
from memory.models import Agent


class Command(Task):
    help = (
        "Print an agent's active memories as JSON Lines, in order of id. This shows content, so it needs the agent's "
        "own key in PALIMPSEST_AGENT_KEY, or the token of a grant in force: in PALIMPSEST_GRANT, so that it stands in "
        "no list of processes, or as --grant. By a grant, what it covers is printed, and each read is recorded."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument("--with-discarded", action="store_true", help="discarded memories too")
        parser.add_argument("--grant", metavar="TOKEN", help="of the grant's page; by it is read, whatever key is set")

    def run(self, *, agent: str, with_discarded: bool, grant: str | None, **options: Any) -> int | None:
        target = agent_named(agent)
        token = os.environ.get("PALIMPSEST_GRANT") or None if grant is None else grant
        read = self._as_agent if token is None else self._under_grant
        for line in read(target, token or "", with_discarded=with_discarded):
            self.stdout.write(line)
        return None

    def _as_agent(self, agent: Agent, _: str, *, with_discarded: bool) -> Iterator[str]:
        if not is_key_of(agent, os.environ.get("PALIMPSEST_AGENT_KEY", "")):
            raise KeyRejected(
                "Memories are shown to their agent, or under a grant: set PALIMPSEST_AGENT_KEY to its valid key, or "
                "PALIMPSEST_GRANT to the token of a grant in force."
            )
        return jsonl.dump(agent, with_discarded=with_discarded)

    def _under_grant(self, agent: Agent, token: str, *, with_discarded: bool) -> Iterator[str]:
        """Page by page, each recorded, as long as the grant is in force."""
        grant, person = grant_tokens.proven(agent, token)
        if grant.scope.kind not in covered.OF_MEMORIES:
            raise Invalid("grant", "covers what entries of the trail did, and no memories: read it on the grant's page")
        rows = covered.memories(agent, grant.scope).filter(redacted_at__isnull=True)
        if not with_discarded:
            rows = rows.filter(discarded_at__isnull=True)
        numbers = list(rows.values_list("number", flat=True))
        for start in range(0, len(numbers), consented.MOST):
            page = numbers[start : start + consented.MOST]
            for read in consented.memories(agent, grant.number, person, page):
                yield json.dumps(
                    jsonl.record(read.memory, read.opened, with_discarded=with_discarded), ensure_ascii=False
                )
