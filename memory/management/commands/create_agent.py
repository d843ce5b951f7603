"""Create an agent."""

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from audit.trail import Actor
from config.commandline import Task, is_attended
from memory.agents import lifecycle
from memory.errors import Invalid
from refinement.llm import catalog
from refinement.llm.base import ModelNotConfigured

_MODEL = "openai/…, anthropic/…, ollama/…, or builtin/dedupe or builtin/archive, which need no network"
# Options that set a field of the agent: field, type, default, placeholder and help.
_SETTINGS: dict[str, tuple[str, type, Any, str, str]] = {
    "steward": ("steward", str, "", "EMAIL", "the person who decides for the agent"),
    "memory-path": ("memory_path", str, "", "FILE", "the file of its log, inside VAULT_ROOTS; default: its journal"),
    "vault": ("vault_path", str, "", "FOLDER", "a folder inside VAULT_ROOTS, for a vault with a file of each memory"),
    "last-n": ("last_n", int, 0, "N", "log entries that gc keeps"),
    "max-entries": ("max_entries", int, 0, "N", "used instead of --last-n if that is 0; default: all"),
    "context-tokens": ("context_tokens", int, None, "TOKENS", "log tokens that gc sends to the model; default: all"),
    "budget": ("budget_tokens", int, 8_000, "TOKENS", "budget of core memory; default: 8000"),
    "target": ("target_tokens", int, None, "TOKENS", "goal of a session; default: 5000, or 5/8 of a smaller budget"),
}


class Command(Task):
    help = "Create an agent, and its tenant if it does not exist. Print its key as JSON. The key is not shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="lower-case letters, digits, '-' and '_'")
        parser.add_argument("--model", required=True, metavar="PROVIDER/NAME", help=_MODEL)
        parser.add_argument("--memory-off", action="store_true", help="create it with memory off")
        parser.add_argument("--yes", action="store_true", help="with --vault: do not ask whether to write it in clear")
        for option, (field, kind, default, metavar, help_text) in _SETTINGS.items():
            parser.add_argument(f"--{option}", dest=field, type=kind, default=default, metavar=metavar, help=help_text)

    def run(self, *, agent: str, model: str, memory_off: bool, **options: Any) -> None:
        tenant, slash, slug = agent.partition("/")
        if not slash:
            raise Invalid("agent", "must have the form TENANT/AGENT")
        try:
            catalog.parse(model)  # does not call the provider
        except ModelNotConfigured as problem:
            raise Invalid("model", str(problem)) from None
        question = f"This writes every memory in clear to {options['vault_path']}. Continue? [y/N]"
        is_agreed = options["yes"] or not options["vault_path"] or (is_attended() and self.answer(question)[:1] == "y")
        if not is_agreed:
            raise Invalid("vault", "writes every memory in clear: agree at a terminal, or pass --yes")
        settings = {field: options[field] for field, *_ in _SETTINGS.values()}
        if settings["target_tokens"] is None:
            settings["target_tokens"] = min(5_000, -(-settings["budget_tokens"] * 5 // 8))
        settings |= {"model": model, "actor": Actor.operator("create_agent"), "memory_enabled": not memory_off}
        with transaction.atomic():  # if the key cannot be printed, the agent is not created
            created, key = lifecycle.create(tenant, slug, **settings)
            self.stdout.write(" ", ending="")  # JSON allows it
            self.stdout.flush()
        self.result({"tenant": created.tenant.slug, "agent": created.slug, "key": key})
        self.say("Store the key now: it is not shown again.")
