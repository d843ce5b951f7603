"""Erase an agent's silo permanently."""

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser

from audit.consent import Request
from audit.models import Operation
from audit.trail import Actor
from config.errors import USAGE
from config.wording import several
from memory.consent import erasure, requests
from memory.management.agent_command import KEY
from memory.management.removal import RemovalCommand
from memory.models import Agent


class Command(RemovalCommand):
    help = (
        "Destroy an agent's data key, so that nobody can read the content of its memories again. The rows stay, and "
        "the trail can still be verified. The command makes a request. The agent's side carries it out with --agree "
        f"and its key in {KEY}. With a reason and the key, the request is carried out at once. A backup that has the "
        "wrapped data key can still be opened, until you delete the backup or retire the key-encryption key. The "
        "output has the id of this key-encryption key. --start-rotation begins to retire it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        rotation = "afterwards add a new key-encryption key, and wrap the other agents' data keys with the new key"
        parser.add_argument("--start-rotation", action="store_true", help=rotation)

    def run(self, *, agent: str, **options: Any) -> int | None:
        if options["start_rotation"] and settings.SILO_KEYS:
            self.fail("--start-rotation cannot change SILO_KEYS: put a new key first in SILO_KEYS yourself", USAGE)
        return super().run(agent=agent, **options)

    def preview(self, agent: Agent, options: dict[str, Any]) -> erasure.Figures:
        if options["agree"] is not None:
            requests.require_open(agent, options["agree"], Operation.ERASURE_REQUESTED)
        return erasure.preview(agent)

    def request(self, agent: Agent, options: dict[str, Any]) -> Request:
        operator = Actor.operator("erase_agent")
        return requests.ask_erasure(agent, operator, reason=options["reason"], asked_by=options["asked_by"])

    def remove(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> erasure.Figures:
        return erasure.erase(agent, request, actor)

    def carry_out(self, agent: Agent, options: dict[str, Any]) -> int | None:
        code = super().carry_out(agent, options)
        if code is None and options["start_rotation"]:
            call_command("create_keys", add_silo_key=True, stdout=self.stderr, stderr=self.stderr)
            call_command("rotate_silo_keys", stdout=self.stderr, stderr=self.stderr)
        return code

    def show(self, figures: erasure.Figures, *, as_json: bool) -> None:
        if as_json:
            self.result(asdict(figures))
            return
        memories = several(figures.memories, "memory", "memories")
        entries, others = several(figures.entries, "entry", "entries"), several(figures.others, "other agent")
        self.tell(f"erasure of the silo: {f'as entry {figures.entry}' if figures.entry else 'not done'}")
        self.tell(f"{memories}, and their copies in {entries} of the trail, can no longer be opened here")
        self.tell(
            f"a backup has the agent's data key, wrapped by silo key {figures.silo_key}; the backup can be opened "
            f"until it is deleted or the silo key is retired; this silo key also wraps the data keys of {others}"
        )
        if figures.file:
            self.tell(f"its memory file is not part of the silo and stays: {figures.file}")
        if figures.vault:
            self.tell(f"the files in its vault are removed: {figures.vault}")
        for path in figures.former_vaults:
            self.tell(f"remove the files of a former vault yourself: {path}")
