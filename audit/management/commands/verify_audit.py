"""Verify audit trails."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from audit import disk, heads, verify
from audit.ill_formed import ill_formed
from audit.models import AccessRequest, AuditEntry
from audit.verify import Problem
from config.commandline import Task, read_file
from config.commandline.progress import progress
from config.errors import FAILED, USAGE
from config.wording import several
from memory.access import heads as own_heads
from memory.access import roles
from memory.access.authentication import agent_named
from memory.models import Agent
from memory.time_machine import replay

MAX_SHOWN = 100  # problems in the output


class Command(Task):
    needs_sound_database = False  # it reports the problems itself
    help = (
        "Verify that no entry of an audit trail was changed, removed or inserted, and that a replay gives the current "
        "memories and counters. This decrypts no content. With exit code 1, the output names the first wrong entry."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", nargs="?", help="verify only this agent's trail")
        parser.add_argument("--all", action="store_true", help="verify every agent's trail")
        exported = "an export of audit_heads; also verify that no trail was cut off or rewritten after it"
        parser.add_argument("--heads", metavar="FILE", help=exported)
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def run(self, *, agent: str | None, **options: Any) -> int | None:
        if bool(agent) == options["all"]:
            self.fail("name one TENANT/AGENT, or use --all", USAGE)
        agents = _named(agent) if agent else list(Agent.objects.order_by("pk").values_list("pk", flat=True))
        file = options["heads"]
        exported = [] if file is None else heads.read(read_file("heads", file))
        if agent:  # also the heads of a former agent of this name
            exported = [head for head in exported if head["agent_id"] in agents or head["agent"] == agent]
        if agent and file and not exported:
            self.fail(f"the heads file has no trail of {agent}, so it proves nothing", USAGE)
        found = [*self._problems(agents, check_orphans=options["all"]), *heads.problems(exported)]
        found += heads.problems(head for pk, head in own_heads.known().items() if agent is None or pk in agents)
        entries = AuditEntry.objects.filter(agent_id__in=agents).count() if agent else AuditEntry.objects.count()
        compared = len(exported) if file else None
        if since := own_heads.stale_since():
            self.say(f"No signed heads were written since {since:%Y-%m-%d %H:%M} UTC: run 'serve' or a worker.")
        self._report(found, len(agents), entries, compared, as_json=options["json"])
        return FAILED if found else None

    def _problems(self, agents: list[int], *, check_orphans: bool) -> Iterator[Problem]:
        yield from verify.missing_guards()
        with progress("verifying", unit="trails", total=len(agents)) as advance:
            for agent in agents:
                yield from replay.problems_of(agent)
                advance(1)
        if check_orphans:
            if damage := disk.damage():
                yield Problem("", 0, f"the database is damaged ({damage}): restore a backup")
            yield from verify.tolerant("", _orphans())
            yield from verify.tolerant("", roles.problems())
            yield from verify.tolerant("", own_heads.problems())

    def _report(self, found: list[Problem], agents: int, entries: int, compared: int | None, *, as_json: bool) -> None:
        if as_json:
            problems = [asdict(problem) for problem in found[:MAX_SHOWN]]
            report: dict[str, Any] = {"valid": not found, "agents": agents, "entries": entries, "problems": problems}
            self.result(report if compared is None else report | {"heads": compared})
            return
        for problem in found[:MAX_SHOWN]:
            place = f"{problem.agent} entry {problem.seq}" if problem.seq else problem.agent
            self.tell(f"{place}: {problem.problem}" if place else problem.problem)
        state = several(len(found), "problem") if found else "valid"
        heads = "" if compared is None else f", compared with {several(compared, 'head')}"
        self.tell(f"{several(agents, 'trail')}, {several(entries, 'entry', 'entries')}{heads}: {state}")


def _named(label: str) -> list[int]:
    """The id of the agent with this name, even if the rest of its row is invalid."""
    with ill_formed() as found:
        pk = agent_named(label).pk
    if not found:
        return [pk]
    tenant, _, slug = label.partition("/")
    return list(Agent.objects.filter(tenant__slug=tenant, slug=slug).values_list("pk", flat=True))


def _orphans() -> Iterator[Problem]:
    """Trails and access requests whose agent's row is missing."""
    present = set(Agent.objects.values_list("pk", flat=True))
    for agent_id, label in verify.trails():
        if agent_id not in present:
            yield Problem(label, 1, "the agent of this trail is missing")
    for pk in AccessRequest.objects.exclude(agent_id__in=present).values_list("pk", flat=True):
        yield Problem("", 0, f"inserted: the access request in row {pk} is of no agent")
