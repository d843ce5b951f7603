"""The command `gc`: a model analyzes an agent's log. Then the log is trimmed to its newest entries."""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Any, NoReturn

from django.core.management.base import CommandParser
from django.db import DatabaseError

from audit.trail import Actor
from config.commandline import Task, drop_output, is_attended, printable
from config.errors import FAILED, USAGE, DomainError
from memory.access.authentication import is_key_of
from memory.consent import granted_reads, grants
from memory.errors import KeyRejected, NotGranted
from memory.models import Agent, Tenant
from refinement import gc
from refinement.gc_logs import Journal, Log


class Command(Task):
    help = (
        "Analyze and trim agent memory. One call of the agent's model looks for patterns in the log of its runs: a "
        "memory file, or the run entries of its journal. Then only the newest entries are kept (the agent's last_n, or "
        "else its max_entries). A rollback can restore removed journal entries. A report about a silo is stored sealed "
        "and is printed only with the agent's key in PALIMPSEST_AGENT_KEY or under a grant."
    )

    output_failed = False  # standard output failed

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.epilog = "Exit codes: 0 done or no work; 1 failed or wrong usage; 2 wrong configuration; 3 model failed."
        parser.error = self._wrong_usage  # type: ignore[method-assign]  # argparse exits with 2
        return parser

    def _wrong_usage(self, message: str) -> NoReturn:
        self.stderr.write(message)
        raise SystemExit(FAILED)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", nargs="?", metavar="AGENT", help="the agent's slug, or TENANT/AGENT")
        dry_run = "analyze and print suggestions without trimming the memory"
        parser.add_argument("--dry-run", action="store_true", help=dry_run)
        parser.add_argument("--all", action="store_true", help="run GC on all agents that have memory enabled")
        parser.add_argument("--tenant", metavar="TENANT", help="with --all: only agents of this tenant")
        parser.add_argument("--model", default="", metavar="PROVIDER/NAME", help="override the model for the analysis")
        parser.add_argument("--grant", metavar="TOKEN", help="print a silo's reports; TOKEN is on the grant's page")

    def run(self, *, agent: str | None, all: bool, tenant: str | None, **options: Any) -> int | None:
        if all and agent:
            return self._refuse("cannot specify both --all and an agent name")
        if not all and not agent:
            return self._refuse("agent name is required (or use --all)")
        if tenant and not all:
            return self._refuse("--tenant needs --all; without --all, name one agent as TENANT/AGENT")
        if tenant and not Tenant.objects.filter(slug=tenant).exists():
            return self._refuse(f'tenant "{tenant}" not found', USAGE)
        access, operator = _Access(options["grant"]), Actor.operator("gc")
        chosen = gc.Options(operator, options["dry_run"], options["model"], access.has_key_of, access.may_print)
        return self._all(tenant, chosen) if all else self._one(agent or "", chosen, access)

    def _refuse(self, message: str, code: int = FAILED) -> int:
        self.stderr.write(message, lambda plain: plain)
        return code

    def _one(self, name: str, options: gc.Options, access: _Access) -> int | None:
        tenant, slash, slug = name.rpartition("/")
        rows = Agent.objects.select_related("tenant").filter(slug=slug).order_by("tenant__slug")
        found = list(rows.filter(tenant__slug=tenant) if slash else rows)
        if len(found) > 1:
            labels = ", ".join(agent.label for agent in found)
            return self._refuse(f'several tenants have an agent "{name}": name one of {labels}', USAGE)
        if not found:
            return self._refuse(f'agent "{name}" not found', USAGE)
        [agent] = found
        try:
            if not agent.memory_path:
                access.require(agent)  # before anything is sent
            gc.collect(agent, name, options, self)
        except DomainError as failure:
            return self._refuse(str(failure), failure.exit_code)
        return None

    def _all(self, tenant: str | None, options: gc.Options) -> int | None:
        rows = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
        agents = list((rows.filter(tenant__slug=tenant) if tenant else rows).order_by("tenant__slug", "slug"))
        if not agents:
            self.tell("No agents with memory enabled.")
            return None
        failed, slugs = 0, Counter(agent.slug for agent in agents)
        for number, agent in enumerate(agents, 1):
            name = agent.slug if slugs[agent.slug] == 1 else agent.label  # two tenants may have the same slug
            if is_attended() and self.stderr.isatty():
                self.say(f"[{number} of {len(agents)}] {name}")
            self.tell(f"=== GC: {name} ===")
            failed += not self._succeeds(agent, name, options)
            if self.output_failed:
                return self._refuse(f"gc stopped: cannot write to the output; {number} of {len(agents)} agents done")
        if failed:
            return self._refuse(f"gc completed with errors: {failed} of {len(agents)} agents failed")
        return None

    def _succeeds(self, agent: Agent, name: str, options: gc.Options) -> bool:
        try:
            gc.collect(agent, name, options, self)
            return True
        except DomainError as failure:
            problem = str(failure)
        except DatabaseError as failure:  # its text may quote content
            problem = f"the database refused ({type(failure).__name__})"
        self.say(f'Error: gc failed for agent "{name}": {problem}')
        return False

    # --- gc.Output

    def tell(self, text: str) -> None:
        safe = printable(text, keep="\n\t") if self.stdout.isatty() else text
        self.stdout.write(f"{safe}\n", ending="")  # adds a line end even if the text has one

    def warn(self, line: str) -> None:
        self.flush()
        self.say(line)

    def flush(self) -> None:
        try:
            if self.output_failed:
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            self.stdout.flush()
        except OSError:
            self.output_failed = True
            drop_output()
            raise


class _Access:
    """The caller's right to print reports about a silo. The right comes from a grant's token, or from the agent's
    key in the environment."""

    def __init__(self, token: str | None) -> None:
        self.token = os.environ.get("PALIMPSEST_GRANT", "") if token is None else token
        self.key = os.environ.get("PALIMPSEST_AGENT_KEY", "")

    def has_key_of(self, agent: Agent) -> bool:
        return bool(self.key) and is_key_of(agent, self.key)

    def require(self, agent: Agent) -> None:
        """Raise KeyRejected if the caller's token or key belongs to another agent. The caller may have neither."""
        if self.token:
            grants.prove_token(agent, self.token)
        elif self.key and not is_key_of(agent, self.key):
            raise KeyRejected(f"PALIMPSEST_AGENT_KEY is not a key of {agent.label}.")

    def may_print(self, agent: Agent, log: Log, report: int) -> bool:
        """Whether the caller may print a report. Without a token, the caller must have the agent's key. With a token,
        the grant must be active, and must cover everything that the report may quote. The read is recorded before the
        report is printed."""
        if not self.token or not isinstance(log, Journal):
            return self.has_key_of(agent)
        try:
            grant, person = grants.prove_token(agent, self.token)
            granted_reads.gc_report(agent, grant.number, person, report, log.numbers)
        except (KeyRejected, NotGranted):
            return False
        return True
