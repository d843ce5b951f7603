"""Undo edits (the Time Machine)."""

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from audit.trail import Actor
from config.commandline import Task
from config.errors import FAILED, USAGE
from config.wording import several
from memory.access.authentication import agent_named
from memory.errors import Conflict, Constitutional
from memory.policy.validation import parse_moment
from memory.time_machine import rollback
from memory.time_machine.selection import Part, What
from refinement.session import end_lapsed


class Command(Task):
    help = (
        "Undo one entry of an agent's audit trail, one refinement session, one import or migration, or everything "
        "after a time or an entry. At a terminal, the command shows a preview without content, and asks for "
        "confirmation. It does not ask in a script, or with --yes or --json. A rollback is itself an entry of the "
        "trail, so it can be rolled back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is, such as acme/ada")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--entry", type=int, metavar="SEQ", help="undo only this entry of the trail")
        what.add_argument("--session", type=int, metavar="ID", help="undo all entries of this refinement session")
        rest = "undo this entry and the later entries of its refinement session"
        what.add_argument("--session-from", type=int, metavar="SEQ", help=rest)
        first = "undo the import or migration that begins with this entry"
        what.add_argument("--import", type=int, metavar="SEQ", help=first)
        moment = "undo everything after this time (ISO 8601; default: UTC)"
        what.add_argument("--to", dest="moment", metavar="TIMESTAMP", help=moment)
        since = "undo everything after this entry; 0 for all"
        what.add_argument("--to-entry", dest="since_entry", type=int, metavar="SEQ", help=since)
        parser.add_argument("--preview", action="store_true", help="show the figures, and change nothing")
        conflicts = parser.add_mutually_exclusive_group()
        conflicts.add_argument("--skip-conflicts", action="store_true", help="skip memories changed by later entries")
        conflicts.add_argument("--force", action="store_true", help="also roll back memories changed by later entries")
        parser.add_argument("--include-constitutional", action="store_true", help="also change constitutional memories")
        reason = "the reason, which the trail keeps; required for constitutional memories"
        parser.add_argument("--reason", default="", metavar="TEXT", help=reason)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--json", action="store_true", help="print the figures as JSON, and do not ask")

    def run(self, *, agent: str, **options: Any) -> int | None:
        if options["include_constitutional"] and not options["reason"].strip():
            self.fail("--include-constitutional needs a --reason", USAGE)
        target, what = agent_named(agent), _what(options)
        if what.kind.startswith("session") and not options["preview"]:
            end_lapsed(target)  # ends a session whose lease has expired
        choices = {name: options[name] for name in ("skip_conflicts", "force", "include_constitutional")}
        preview = rollback.preview(target, what, **choices)
        if options["preview"]:
            self._show(preview, as_json=options["json"])
            return None
        is_confirmed = options["yes"] or options["json"] or bool(preview.refused)
        if not self.agrees(lambda: self._show(preview, as_json=False), yes=is_confirmed):
            self.say("Nothing was changed.")
            return FAILED
        operator, head = Actor.operator("rollback"), None if is_confirmed else preview.head
        try:
            did = rollback.roll_back(target, what, operator, reason=options["reason"], head=head, **choices)
        except (Conflict, Constitutional) as refused:
            self._show(preview, as_json=options["json"])
            advice = " (--include-constitutional --reason TEXT)" if isinstance(refused, Constitutional) else ""
            self.fail(f"{refused}{advice} Nothing was changed.", FAILED)
        self._show(did, as_json=options["json"])
        return None

    def _show(self, figures: rollback.Figures, *, as_json: bool) -> None:
        if as_json:
            self.result(_as_record(figures))
            return
        [(kind, at)] = figures.undid.items()
        what = f"a rollback of {_KINDS[kind]} {at}"
        self.tell(f"{what}, done as entry {figures.entry}:" if figures.entry else f"preview of {what}:")
        self.tell(
            f"{several(figures.restored, 'memory', 'memories')} restored, {figures.discarded:,} discarded, "
            f"{figures.rewritten:,} rewritten, {figures.moved:,} moved; "
            f"protection of {figures.protection_changed:,} changed; "
            f"{figures.tokens_before:,} → {figures.tokens_after:,} tokens of core memory"
        )
        for number, seqs in figures.conflicts:
            later = f"{'entry' if len(seqs) == 1 else 'entries'} {', '.join(map(str, seqs))}"
            self.tell(f"conflict: memory {number} was changed later, by {later}")
        if figures.rests:
            again = "is refined again after a day. Pause it to prevent this"
            self.tell(f"after this, the agent is over its budget, and {again}")
        if figures.redacted:
            self.tell(f"not rolled back, because redacted in the meantime: {', '.join(map(str, figures.redacted))}")
        if figures.constitutional and not figures.entry:
            self.tell(f"constitutional now: {', '.join(map(str, figures.constitutional))}")
        if figures.refused:
            self.tell(_REFUSED[figures.refused])


_KINDS: dict[Part, str] = {
    "entry": "entry",
    "session": "session",
    "session_from": "the rest of a session, from entry",
    "import": "the import of entry",
    "since_entry": "everything after entry",
    "moment": "everything after",
}
_REFUSED = {
    Conflict.code: "the rollback is refused because of conflicts: use --skip-conflicts or --force",
    Constitutional.code: "the rollback is refused: constitutional memories need --include-constitutional --reason TEXT",
}


def _what(options: dict[str, Any]) -> What:
    kind = next(kind for kind in _KINDS if options[kind] is not None)
    return What(kind, parse_moment("to", options[kind]) if kind == "moment" else options[kind])


def _as_record(figures: rollback.Figures) -> dict[str, Any]:
    """Return the figures as a dict for JSON output."""
    record = asdict(figures)
    del record["head"]
    conflicts = [{"memory": number, "entries": entries} for number, entries in figures.conflicts]
    return record | {"conflicts": conflicts, "refused": figures.refused or None, "applied": figures.entry is not None}
