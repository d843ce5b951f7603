"""Make an agent."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from audit.trail import Actor
from config.commandline import Task
from memory.agents import lifecycle
from memory.errors import Invalid
from refinement.llm import catalog
from refinement.llm.base import ModelNotConfigured

MAX_TOKENS = 2**31 - 1  # of the column


class Command(Task):
    help = (
        "Make an agent, and its tenant if need be. Prints JSON with the agent's key, once: "
        '{"tenant": …, "agent": …, "key": …}.'
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="lower-case letters, digits, '-' and '_'")
        parser.add_argument(
            "--model",
            required=True,
            metavar="PROVIDER/NAME",
            help="openai/…, anthropic/…, ollama/… or builtin/dedupe, which needs no network",
        )
        parser.add_argument("--steward", default="", metavar="EMAIL", help="the person who speaks for the agent")
        parser.add_argument("--memory-off", action="store_true", help="begin with memory switched off")
        parser.add_argument(
            "--memory-path",
            default="",
            metavar="FILE",
            help="a log file of its runs under VAULT_ROOTS; default: its journal",
        )
        parser.add_argument(
            "--vault", default="", metavar="FOLDER", help="a folder under VAULT_ROOTS with a file per memory"
        )
        parser.add_argument("--last-n", type=int, default=0, metavar="N", help="entries of the log that gc keeps")
        parser.add_argument(
            "--max-entries", type=int, default=0, metavar="N", help="the same if --last-n is 0; default: all"
        )
        parser.add_argument(
            "--context-tokens", type=int, metavar="TOKENS", help="of its log that gc sends; default: all"
        )
        parser.add_argument("--budget", type=int, default=8_000, metavar="TOKENS", help="default: 8000")
        parser.add_argument("--target", type=int, metavar="TOKENS", help="default: 5000, or 5/8 of a smaller budget")

    def run(self, *, agent: str, model: str, **options: Any) -> int | None:
        tenant, slash, slug = agent.partition("/")
        if not slash:
            raise Invalid("agent", "must be given as TENANT/AGENT")
        if options["budget"] > MAX_TOKENS:
            raise Invalid("budget", f"must be no more than {MAX_TOKENS:,}")
        if options["budget"] < 1:
            raise Invalid("budget", "must be more than 0")
        target = min(5_000, -(-options["budget"] * 5 // 8)) if options["target"] is None else options["target"]
        if not 0 < target <= options["budget"]:
            raise Invalid("target", "must be more than 0 and no more than the budget")
        _check_model(model)
        with transaction.atomic():  # an agent whose key could not be shown is not made
            made, key = lifecycle.create(
                tenant,
                slug,
                model=model,
                actor=Actor.operator("create_agent"),
                steward=options["steward"],
                memory_enabled=not options["memory_off"],
                memory_path=options["memory_path"],
                vault_path=options["vault"],
                last_n=options["last_n"],
                max_entries=options["max_entries"],
                context_tokens=options["context_tokens"],
                budget_tokens=options["budget"],
                target_tokens=target,
            )
            self.result({"tenant": made.tenant.slug, "agent": made.slug, "key": key})
            self.stdout.flush()
        self.say("The key is shown this once; only its MAC is kept.")
        return None


def _check_model(model: str) -> None:
    """That it can be a model's name. Whether its provider can be called is asked when it is."""
    try:
        catalog.parse(model)
    except ModelNotConfigured as problem:
        raise Invalid("model", str(problem)) from None
