"""Remove the content of memories permanently."""

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from audit.consent import Request
from audit.models import Operation
from audit.trail import Actor
from config.errors import USAGE
from config.wording import several
from memory.consent import redaction, requests
from memory.errors import Constitutional
from memory.management.agent_command import KEY
from memory.management.removal import RemovalCommand
from memory.models import Agent


class Command(RemovalCommand):
    help = (
        "Remove the content of memories permanently, also from the trail. A person may have a right to this. Rows, "
        "times and digests stay, and the trail can still be verified. The command makes a request. The agent's side "
        f"carries it out with --agree and its key in {KEY}. With ids, a reason and the key, it makes the request and "
        "carries it out. The memories from which these were made, that were made from them, or that have the same text "
        "are redacted, too. The output lists other memories that may have the same content: decide yourself about "
        "these. Earlier backups keep the content until you delete these backups."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("ids", metavar="ID", type=int, nargs="*", help="the memories to redact")
        keep = "a memory of their lineage that stays; can be repeated"
        parser.add_argument("--exclude", metavar="ID", type=int, action="append", default=[], help=keep)
        parser.add_argument("--include-constitutional", action="store_true", help="also redact constitutional memories")

    def run(self, *, agent: str, **options: Any) -> int | None:
        settles = options["waiting"] or options["agree"] is not None or options["decline"] is not None
        if settles == bool(options["ids"]):
            self.fail("give the ids of memories, or use one of --waiting, --agree and --decline", USAGE)
        return super().run(agent=agent, **options)

    def preview(self, agent: Agent, options: dict[str, Any]) -> redaction.Figures:
        if options["ids"]:
            return redaction.preview(agent, options["ids"], options["exclude"])
        request = requests.require_open(agent, options["agree"], Operation.REDACTION_REQUESTED)
        return redaction.preview(agent, request.memories, request.excluded, request.version)

    def objection(self, figures: redaction.Figures, options: dict[str, Any]) -> str:
        if figures.constitutional and not options["include_constitutional"]:
            return f"{Constitutional(figures.constitutional)} (--include-constitutional)"
        return ""

    def request(self, agent: Agent, options: dict[str, Any]) -> Request:
        given = {"reason": options["reason"], "asked_by": options["asked_by"], "excluded": options["exclude"]}
        return requests.ask_redaction(agent, options["ids"], Actor.operator("redact"), **given)

    def remove(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> redaction.Figures:
        return redaction.redact(agent, request, actor, include_constitutional=options["include_constitutional"])

    def show(self, figures: redaction.Figures, *, as_json: bool) -> None:
        if as_json:
            self.result(asdict(figures))
            return
        state = f"as entry {figures.entry}" if figures.entry else "not done"
        self.tell(f"redaction of {', '.join(map(str, figures.memories))}: {state}")
        self.tell(
            f"content in the trail: {several(figures.changes, 'change')}, {several(figures.notes, 'note')}; "
            f"active memories: {figures.active:,}; "
            f"{figures.tokens_before:,} → {figures.tokens_after:,} tokens of core memory"
        )
        if figures.constitutional:
            self.tell(f"constitutional: {', '.join(map(str, figures.constitutional))}")
        for each in figures.lineage:
            self.tell(f"lineage: memory {each.number} ({each.state}), too: {_WHY[each.why]}")
        for each in figures.related:
            self.tell(f"to decide: memory {each.number} ({each.state}) may have the same content: {_WHY[each.why]}")
        for path in figures.former_vaults:
            self.tell(f"remove the files of a former vault yourself: {path}")
        if figures.entry:
            self.tell("earlier backups still have the content, sealed, until they are deleted")


_WHY = {
    "source": "this memory was merged into a redacted memory",
    "merged": "it is the result of a merge with a redacted memory",
    "same words": "this memory has, or had, exactly the same text",
    "notice": "it is the notice of a session that edited a redacted memory",
    "told": "it is the memory of a session or topic to which a redacted memory belongs",
    "shown": "it is the notice of a session whose model may have read a redacted memory",
}
