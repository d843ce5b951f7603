"""The command `demo`: refine a sample ledger."""

import json
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import refinement.demo
from audit.models import AuditEntry
from audit.trail import Actor
from config import typed
from config.commandline import Task
from config.errors import FAILED
from memory.access import authentication
from memory.accounts import people
from memory.agents import lifecycle
from memory.models import Agent, Authenticator, DueReason, Memory, Person
from memory.silo.silo import Silo
from memory.time_machine import replay
from memory.transfer import importing
from memory.writing import operations
from refinement import loop
from refinement.models import RefinementSession

FOLDER = Path(refinement.demo.__file__).parent
ADMIN = Actor.person("demo admin")
SUPERUSER = "demo@example.org"
EXAMPLES = 2  # merges that the demo shows; it reads them with the agent's own key


class Command(Task):
    needs_sound_database = False  # it creates the database
    help = (
        "Refine a sample agent, and show the result. The demo creates a tenant, an agent and a superuser in its own "
        "database, imports the demo ledger, and refines it with builtin/dedupe. It uses no API key and no network."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--code", action="store_true", help="print the superuser's present code for a sign-in")

    def run(self, *, code: bool, **options: Any) -> int | None:
        if code:
            self.tell(people.code_at(Authenticator.objects.get(user__email=SUPERUSER), time.time()))
            return None
        self.set_up()
        if Agent.objects.exists():
            self.fail("this database already has agents; the demo needs its own database", FAILED)
        self._out = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        started = time.perf_counter()
        agent, key = lifecycle.create("demo", "ada", model="builtin/dedupe", actor=Actor.operator("demo"))
        with (FOLDER / "ledger.jsonl").open("rb") as file:
            done = importing.check_file(file, "jsonl").store(agent, Actor.operator("demo"))
        size = f"{done.imported:,} memories, {done.tokens:,} tokens"
        self._out.print(f"[bold]demo/ada[/] has {size}. Only ada can read them.")
        plan = json.loads((FOLDER / "plan.json").read_text("utf-8"))
        operations.protect(agent, plan["protect_before"], ADMIN)
        session = self._refine(agent, plan["protect_during"])
        self._figures(agent, session, done.imported)
        self._merges(key, done.imported)
        problems = self._trail(agent)
        seconds = time.perf_counter() - started
        self._out.print(f"\nDone in {seconds:.1f} seconds. To look at it, start the service, and sign in at /admin/:\n")
        self._superuser()
        return FAILED if problems else None

    def _superuser(self) -> None:
        """Create a superuser, and print how to sign in."""
        password = secrets.token_urlsafe(12)
        person = Person.objects.create_user(SUPERUSER, name="Demo", is_superuser=True)
        person.sign()
        people.set_password(person, password)
        factor = people.candidate(person, password)
        people.install(factor, people.code_at(factor, time.time() - people.STEP))  # the present code stays unused
        rows = {
            "start": f"VAR_DIR={shlex.quote(str(settings.VAR_DIR))} {typed()} serve",
            "address": SUPERUSER,
            "password": password,
            "code, for one use": f"{typed()} demo --code",
            "or the app's key": people.secret_text(factor),
        }
        for name, value in rows.items():
            self._out.print(f"  {name:<18}{escape(value)}")

    def _refine(self, agent: Agent, protect_during: list[int]) -> RefinementSession:
        waiting = [protect_during]

        def protect_once(_: str) -> None:
            if waiting:
                operations.protect(agent, waiting.pop(), ADMIN)

        agent.refresh_from_db()
        return loop.refine(agent, trigger=DueReason.OVER_BUDGET, report=protect_once)

    def _figures(self, agent: Agent, session: RefinementSession, imported: int) -> None:
        agent.refresh_from_db()
        made = Memory.objects.of(agent).core().filter(number__gt=imported).count()
        table = Table(title=f"Refinement session {session.number}: {session.outcome}", title_justify="left")
        for heading in ("", "before", "after"):
            table.add_column(heading, justify="left" if not heading else "right")
        table.add_row("core memory, tokens", f"{session.tokens_before:,}", f"[bold green]{session.tokens_after:,}[/]")
        table.add_row("core memories", f"{session.memories_before:,}", f"{session.memories_after:,}")
        self._out.print(table)
        facts = {
            "target": f"{session.target_tokens:,} tokens (budget {session.budget_tokens:,})",
            "floor": f"{session.floor_tokens:,} tokens: sessions never cut below it",
            "exact duplicates removed": f"{session.duplicates_removed:,}, found by keyed digests, without reading",
            "near-duplicates merged": f"{session.merged:,} into {made:,}, with every number, date, name and negation",
            "constitutional": f"{agent.constitutional_count:,}, unchanged",
            "permanently deleted": "0: a rollback restores merged memories",
        }
        for name, value in facts.items():
            self._out.print(f"  {name:<26}{value}")

    def _merges(self, key: str, imported: int) -> None:
        """Print some merges. They are read with the agent's key, which can open only the silo of this agent."""
        agent = authentication.agent_key(key).agent
        silo = Silo.for_agent(agent)
        self._out.print("\n[bold]Two merges, read with ada's own key[/]")
        for result in Memory.objects.of(agent).core().filter(number__gt=imported).order_by("number")[:EXAMPLES]:
            for source in Memory.objects.of(agent).filter(superseded_by=result.number).order_by("number"):
                self._out.print(_line("[red]-[/]", source, silo))
            self._out.print(_line("[green]+[/]", result, silo) + "\n")

    def _trail(self, agent: Agent) -> int:
        agent.refresh_from_db()
        problems = list(replay.problems(agent))
        entries = AuditEntry.objects.filter(agent_id=agent.pk).count()
        valid = "[bold green]valid[/]: the chain is complete, and its replay equals the memories"
        state = f"[bold red]{len(problems)} problems[/]" if problems else valid
        self._out.print(f"[bold]Audit trail[/] {entries} entries, {state}.")
        return len(problems)


def _line(sign: str, memory: Memory, silo: Silo) -> str:
    return f"  {sign} #{memory.number} {memory.origin:%Y-%m-%d} {escape(silo.open(memory).content)}"
