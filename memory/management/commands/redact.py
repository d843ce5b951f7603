"""Remove the content of memories permanently."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from audit.models import Operation
from audit.removals import Removal
from audit.trail import Actor
from config.errors import USAGE
from config.wording import several
from memory.consent import redaction, removal_requests
from memory.consent.redaction import Figures
from memory.errors import Constitutional
from memory.management.agent_command import KEY
from memory.management.removal import RemovalCommand
from memory.models import Agent


class Command(RemovalCommand):
    help = (
        "Remove the content of memories permanently, in the trail too: for a data subject's request. Rows, times and "
        "digests stay, and the trail still verifies. The command files a request, which the agent's side carries out "
        f"with --agree and its key in {KEY}; with ids, a reason and the key, both are done at once. The output lists "
        "other memories that may say the same, for you to decide. Backups from before keep the content until they age "
        "out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument("ids", metavar="ID", type=int, nargs="*", help="the memories to redact")
        super().add_arguments(parser)
        parser.add_argument("--include-constitutional", action="store_true", help="constitutional memories, too")

    def run(self, *, agent: str, **options: Any) -> int | None:
        settles = options["waiting"] or options["agree"] is not None or options["decline"] is not None
        if settles == bool(options["ids"]):
            self.fail("name memories, or give one of --waiting, --agree and --decline", USAGE)
        return super().run(agent=agent, **options)

    def preview(self, agent: Agent, options: dict[str, Any]) -> Figures:
        numbers = options["ids"]
        if not numbers:
            numbers = removal_requests.open_request(agent, options["agree"], Operation.REDACTION_REQUESTED).memories
        return redaction.preview(agent, numbers)

    def objection(self, figures: Figures, options: dict[str, Any]) -> str:
        if figures.constitutional and not options["include_constitutional"]:
            return f"{Constitutional(figures.constitutional)} (--include-constitutional)"
        return ""

    def request(self, agent: Agent, options: dict[str, Any]) -> Removal:
        reason, asked_by, operator = options["reason"], options["asked_by"], Actor.operator("redact")
        return removal_requests.ask_redaction(agent, options["ids"], operator, reason=reason, asked_by=asked_by)

    def remove(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> Figures:
        return redaction.redact(agent, request, actor, include_constitutional=options["include_constitutional"])

    def show(self, figures: Figures, *, as_json: bool) -> None:
        if as_json:
            self.result(asdict(figures))
            return
        state = f"as entry {figures.entry}" if figures.entry else "not done"
        self.tell(f"redaction of {', '.join(map(str, figures.memories))}: {state}")
        self.tell(
            f"{several(figures.changes, 'change')} and {several(figures.notes, 'note')} of the trail emptied; "
            f"{figures.active:,} of the memories active; "
            f"{figures.tokens_before:,} → {figures.tokens_after:,} tokens of core memory"
        )
        if figures.constitutional:
            self.tell(f"constitutional: {', '.join(map(str, figures.constitutional))}")
        for each in figures.related:
            self.tell(f"to decide: memory {each.number} ({each.state}) may say the same: {_WHY[each.why]}")
        for path in figures.former_vaults:
            self.tell(f"the files of a former vault are left for you to remove: {path}")
        if figures.entry:
            self.tell("backups from before still hold it, sealed, until they age out")


_WHY = {
    "source": "it was merged into what is redacted",
    "merged": "it was merged from what is redacted",
    "same words": "it says, or said, exactly the same",
    "notice": "the notice of a session that edited it",
    "told": "the memory of the session it was recorded in, or of its topic",
    "shown": "the notice of a session whose model may have read it",
}
