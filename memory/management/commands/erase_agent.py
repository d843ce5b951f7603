"""Erase an agent's silo."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser

from audit.models import Operation
from audit.removals import Removal
from audit.trail import Actor
from config.errors import USAGE
from config.wording import several
from memory.consent import erasure, removal_requests
from memory.consent.erasure import Figures
from memory.management import removal
from memory.models import Agent


class Command(removal.Removing):
    help = (
        "Destroy an agent's data key: nothing that its memories say can be read again here. Rows and trail stay, and "
        "the trail still verifies. Asks the agent's side, which agrees with --agree and its key in "
        "PALIMPSEST_AGENT_KEY; with a reason and the key, it is asked and done at once. A backup that still holds the "
        "wrapped key can be opened until it ages out or the key-encryption key that wrapped it, which is named, is "
        "retired: --start-rotation begins that."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        super().add_arguments(parser)
        parser.add_argument(
            "--start-rotation",
            action="store_true",
            help="then add a new key-encryption key and rewrap every other agent's data key by it",
        )

    def run(self, *, agent: str, **options: Any) -> int | None:
        if options["start_rotation"] and settings.SILO_KEYS:
            self.fail("--start-rotation cannot put a key into SILO_KEYS: put a new one before the others there", USAGE)
        return super().run(agent=agent, **options)

    def preview_of(self, agent: Agent, options: dict[str, Any]) -> Figures:
        if options["agree"] is not None:
            removal_requests.open_request(agent, options["agree"], Operation.ERASURE_REQUESTED)
        return erasure.preview(agent)

    def ask(self, agent: Agent, options: dict[str, Any]) -> Removal:
        return removal_requests.ask_erasure(agent, _OPERATOR, reason=options["reason"], asked_by=options["asked_by"])

    def carry_out(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> Figures:
        return erasure.erase(agent, request, actor)

    def afterwards(self, options: dict[str, Any]) -> None:
        if options["start_rotation"]:
            call_command("create_keys", add_silo_key=True, stdout=self.stderr, stderr=self.stderr)
            call_command("rotate_silo_keys", stdout=self.stderr, stderr=self.stderr)

    def show(self, figures: Figures, *, as_json: bool) -> None:
        if as_json:
            self.result(asdict(figures))
            return
        self.tell(f"erasure of the silo: {f'as entry {figures.entry}' if figures.entry else 'not done'}")
        memories, entries = (
            several(figures.memories, "memory", "memories"),
            several(figures.entries, "entry", "entries"),
        )
        self.tell(f"{memories}, and what {entries} of the trail keep of them, can no longer be opened here")
        self.tell(
            f"a backup that holds its data key, wrapped by silo key {figures.silo_key}, opens until it ages out or "
            f"that key is retired, which wrapped those of {several(figures.others, 'other agent')}, too"
        )
        if figures.file:
            self.tell(f"its memory file is no part of the silo, and stays: {figures.file}")
        if figures.vault:
            self.tell(f"the files in its vault are removed: {figures.vault}")
        for path in figures.former_vaults:
            self.tell(f"what is in a former vault is left, for you to remove: {path}")


_OPERATOR = Actor.operator("erase_agent")
