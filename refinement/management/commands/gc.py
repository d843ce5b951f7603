"""Have a model look at agents' logs for patterns, and leave the newest entries of them (seed 001)."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

from django.core.management.base import CommandParser
from django.db import DatabaseError

from audit.trail import Actor
from config.commandline import Task, drop_output, is_attended
from config.errors import DomainError
from memory.access.authentication import is_key_of
from memory.consent import grant_tokens, granted_reads
from memory.errors import KeyRejected, NotGranted
from memory.models import Agent, Tenant
from refinement import gc
from refinement.gc_logs import Journal, Log

FAILED, CONFIGURATION = gc.FAILED, gc.CONFIGURATION


class Command(Task):
    help = (
        "Analyze and trim agent memory: one call of the agent's model looks for patterns in its log of runs, a memory "
        "file or the run entries of its journal; then the newest entries are kept (its last_n, else its max_entries) "
        "and the others go, those of a journal until a rollback brings them back. What a model says of a silo is "
        "printed with the agent's key in PALIMPSEST_AGENT_KEY, or under a grant, and else kept sealed for the agent."
    )

    is_lost = False  # what was told could not be written out

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.epilog = "Exit codes: 0 done, or nothing to do; 1 failed, or wrong usage; 2 configuration; 3 the model."
        parser.error = self._wrong_usage  # type: ignore[method-assign]  # with exit code 1, as the seed has it
        return parser

    def _wrong_usage(self, message: str) -> NoReturn:
        self.stderr.write(message)
        raise SystemExit(FAILED)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", nargs="?", metavar="AGENT", help="its slug, or TENANT/AGENT")
        parser.add_argument(
            "--dry-run", action="store_true", help="analyze and print suggestions without trimming the memory"
        )
        parser.add_argument("--all", action="store_true", help="run GC on all agents that have memory enabled")
        parser.add_argument("--tenant", metavar="TENANT", help="with --all: those of this tenant alone")
        parser.add_argument("--model", default="", metavar="PROVIDER/NAME", help="override the model for the analysis")
        parser.add_argument("--grant", metavar="TOKEN", help="of the grant's page: print a silo's analysis under it")

    def run(self, *, agent: str | None, all: bool, tenant: str | None, **options: Any) -> int | None:
        if all and agent:
            return self._refused("cannot specify both --all and an agent name")
        if not all and not agent:
            return self._refused("agent name is required (or use --all)")
        if tenant and not all:
            return self._refused("--tenant goes with --all; name the agent as TENANT/AGENT")
        token = os.environ.get("PALIMPSEST_GRANT") or "" if options["grant"] is None else options["grant"]
        if tenant and not Tenant.objects.filter(slug=tenant).exists():
            return self._refused(f'tenant "{tenant}" not found', CONFIGURATION)
        asked = _asked(token=token, **options)
        return self._all(tenant, asked) if all else self._one(agent or "", asked, token)

    def _refused(self, message: str, code: int = FAILED) -> int:
        self.stderr.write(message, lambda plain: plain)
        return code

    # --- one agent

    def _one(self, name: str, asked: gc.Asked, token: str) -> int | None:
        found = list(_named(name))
        if len(found) > 1:
            several = ", ".join(agent.label for agent in found)
            return self._refused(f'agent "{name}" is one of several tenants: name one of {several}', CONFIGURATION)
        if not found:
            return self._refused(f'agent "{name}" not found', CONFIGURATION)
        try:
            if not found[0].memory_path:
                _require_proof(found[0], token)  # before anything is sent
            gc.collect(found[0], name, asked, self)
        except gc.GcFailed as failure:
            return self._refused(str(failure), failure.exit)
        except DomainError as failure:  # of the silo itself: erased, or its key is missing
            return self._refused(str(failure), failure.exit_code)
        return None

    # --- all of them

    def _all(self, tenant: str | None, asked: gc.Asked) -> int | None:
        agents = list(_enabled(tenant))
        if not agents:
            self.tell("No agents with memory enabled.")
            return None
        names, failed = _shown_names(agents), 0
        for place, (agent, name) in enumerate(zip(agents, names, strict=True), 1):
            if is_attended() and self.stderr.isatty():
                self.say(f"[{place} of {len(agents)}] {name}")
            self.tell(f"=== GC: {name} ===")
            try:
                gc.collect(agent, name, asked, self)
            except (DomainError, DatabaseError) as failure:
                failed += 1
                told = (
                    failure if isinstance(failure, DomainError) else f"the database refused ({type(failure).__name__})"
                )
                self.say(f'Error: gc failed for agent "{name}": {told}')
            if self.is_lost:
                return self._refused(
                    f"gc ended: what is found cannot be written out; {place} of {len(agents)} agents done"
                )
        if failed:
            return self._refused(f"gc completed with errors: {failed} of {len(agents)} agents failed")
        return None

    # --- where it is told

    def tell(self, text: str) -> None:
        shown = _harmless(text) if self.stdout.isatty() else text
        self.stdout.write(f"{shown}\n", ending="")  # also where it ends in one

    def warn(self, line: str) -> None:
        self.flush()
        self.say(line)

    def flush(self) -> None:
        try:
            if self.is_lost:
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            self.stdout.flush()
        except OSError:
            self.is_lost = True
            drop_output()
            raise


# --- what of a silo is shown


def _asked(*, dry_run: bool, model: str, token: str, **_: Any) -> gc.Asked:
    key = os.environ.get("PALIMPSEST_AGENT_KEY", "")

    def is_agents(agent: Agent) -> bool:
        return bool(key) and is_key_of(agent, key)

    def may_read(agent: Agent, log: Log, report: int) -> bool:
        if token and isinstance(log, Journal):
            return _may_read_under(agent, token, log.numbers, report)
        return is_agents(agent)

    return gc.Asked(Actor.operator("gc"), dry_run, model, is_agents, may_read)


def _require_proof(agent: Agent, token: str) -> None:
    """Raise KeyRejected for a grant, or a key, that was given and is none of this agent's."""
    key = os.environ.get("PALIMPSEST_AGENT_KEY", "")
    if token:
        grant_tokens.proven(agent, token)
    elif key and not is_key_of(agent, key):
        raise KeyRejected(f"PALIMPSEST_AGENT_KEY is no key of {agent.label}.")


def _may_read_under(agent: Agent, token: str, numbers: list[int], report: int) -> bool:
    """Whether a grant in force covers all that the report may quote; recorded before it is shown."""
    try:
        grant, person = grant_tokens.proven(agent, token)
        granted_reads.gc_report(agent, grant.number, person, report, numbers)
    except (KeyRejected, NotGranted):
        return False
    return True


def _named(name: str) -> Iterable[Agent]:
    tenant, slash, slug = name.rpartition("/")
    rows = Agent.objects.select_related("tenant").filter(slug=slug).order_by("tenant__slug")
    return rows.filter(tenant__slug=tenant) if slash else rows


def _enabled(tenant: str | None) -> Iterable[Agent]:
    rows = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
    return (rows.filter(tenant__slug=tenant) if tenant else rows).order_by("tenant__slug", "slug")


def _shown_names(agents: list[Agent]) -> list[str]:
    """Slugs; of agents whose slug two tenants have, tenant/slug."""
    slugs = Counter(agent.slug for agent in agents)
    return [agent.slug if slugs[agent.slug] == 1 else agent.label for agent in agents]


def _harmless(text: str) -> str:
    """What a model said does not command the terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in text)
