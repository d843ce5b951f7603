"""Refine an agent's memory, in the foreground."""

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.errors import MODEL, USAGE, DomainError
from memory.access.authentication import agent_named
from memory.models import Agent, DueReason
from refinement import cost, loop, probe, schedule
from refinement import session as sessions
from refinement.errors import SessionOpen
from refinement.llm.base import ModelError, ModelNotConfigured
from refinement.models import Mode, Outcome, RefinementSession


class Command(Task):
    help = (
        "Run a refinement session of an agent with its own model, and print the figures. No content is shown. The exit "
        "code is 0 if the session was completed, was declined or ended early. It is 3 if the session failed, or if the "
        "model cannot be called, so that no session was opened. Then standard "
        "error says why. The edits stay in any case. The figures are about core memory. 'before' includes exact "
        "duplicates. A session removes them first ('repeated tokens')."
    )

    _has_output = False  # the next figures need an empty line before them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", nargs="?", help="the agent to refine")
        parser.add_argument("--all-due", action="store_true", help="refine all due agents, the longest overdue first")
        parser.add_argument("--dedupe-only", action="store_true", help="remove near-duplicates only")
        dry_run = "show the figures; call no model and change nothing"
        parser.add_argument("--dry-run", action="store_true", help=dry_run)
        parser.add_argument("--json", action="store_true", help="print one line of JSON for each agent")

    def run(self, *, agent: str | None, **options: Any) -> int | None:
        if bool(agent) == options["all_due"]:
            self.fail("name one TENANT/AGENT, or use --all-due", USAGE)
        if options["all_due"] and not options["dry_run"]:
            sessions.close_stale()
        agents = [agent_named(agent)] if agent else list(schedule.due())
        one = self._one_of_many if options["all_due"] else self._one
        codes = [one(each, **options) for each in agents]
        if not agents:
            self.say("no agent is due")
        return max(codes, default=0)

    def _one_of_many(self, agent: Agent, **options: Any) -> int:
        """Refine one of many agents. An error is printed and does not stop the command."""
        try:
            return self._one(agent, **options)
        except SessionOpen:
            self.say(f"{agent.label}: another worker refines it")
            return 0
        except DomainError as error:
            self.say(f"error: {agent.label}: {error}")
            return error.exit_code

    def _one(self, agent: Agent, **options: Any) -> int:
        mode = Mode.DEDUPE_ONLY if options["dedupe_only"] else Mode.FULL
        named = {"agent": agent.label} if options["all_due"] else {}
        if options["dry_run"]:
            return self._preview(agent, mode, named, as_json=options["json"])
        if trouble := probe.trouble(agent):
            return self._refused(agent, named, trouble, as_json=options["json"])
        failures: list[DomainError] = []
        trigger = schedule.why(agent) or DueReason.MANUAL
        session = loop.refine(agent, trigger=trigger, mode=mode, report=self._report, failed=failures.append)
        self._show(named | report_of(session), as_json=options["json"])
        for failure in failures:
            self.say(f"error: {agent.label}: {failure}")
        return MODEL if session.outcome == Outcome.FAILED else 0

    def _preview(self, agent: Agent, mode: Mode, named: dict[str, Any], *, as_json: bool) -> int:
        figures = named | sessions.preview(agent, mode)
        if problem := probe.problems([agent.model]).get(agent.model):
            return self._refused(agent, figures, ModelNotConfigured(problem), as_json=as_json)
        self._show(figures | {"error": None}, as_json=as_json)
        return 0

    def _refused(self, agent: Agent, figures: dict[str, Any], failure: ModelError, *, as_json: bool) -> int:
        """Say why no session with the agent's model can start."""
        self._show(figures | {"error": failure.code}, as_json=as_json)
        self.say(f"error: {agent.label}: {failure}")
        return MODEL

    def _report(self, line: str) -> None:
        if self.stderr.isatty():
            self.say(line)

    def _show(self, figures: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.result(figures)
            return
        if self._has_output:
            self.tell("")
        self._has_output = True
        width = max(map(len, figures))
        for name, value in figures.items():
            if value not in (None, ""):
                text = f"{value:,}" if type(value) is int else value
                self.tell(f"{name.replace('_', ' '):<{width}}  {text}")


def report_of(session: RefinementSession) -> dict[str, Any]:
    """A session's figures. Programs read them."""
    return {
        "session": session.number,
        **sessions.figures(session),
        "refused": session.failed_calls,
        "model_calls": session.model_calls,
        **cost.figures(session),
        "model_seconds": session.model_milliseconds / 1_000,
        "own_seconds": session.own_microseconds / 1_000_000,
        "problem": session.problem or None,
        "error": session.reason if session.outcome == Outcome.FAILED else None,
    }
