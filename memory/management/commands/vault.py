"""Compare, repair and open the files of an agent's vault."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import is_shown, read_file
from config.commandline.progress import progress
from config.errors import FAILED
from config.wording import several
from memory.access.authentication import require_valid_key
from memory.errors import Invalid
from memory.management.agent_command import KEY, AgentCommand, agents_side, shown_path
from memory.models import Agent
from memory.vault import comparing
from memory.vault.rendering import visible
from memory.vault.writer import open_file

_REPAIR = "--repair writes it again"
_DESCRIPTIONS = {
    comparing.BEHIND: f"differs from its memory; {_REPAIR}",
    comparing.MISSING: f"is missing; {_REPAIR}",
    comparing.EDITED: "was changed by hand; --repair keeps it in .discarded/, and writes the memory's file again",
    comparing.MISPLACED: "is not in the folder that the settings name; --repair moves it",
    comparing.OLDER: f"was written under another version of the rules; {_REPAIR}",
    comparing.COPY: "is a copy that the vault does not need; you can remove it",
    comparing.INDEX: f"is missing, or does not list the files; {_REPAIR}",
    comparing.UNREADABLE: "cannot be read",
}


class Command(AgentCommand):
    help = "Compare the files of an agent's vault with its silo, repair differences, or open a private memory's file."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(required=True, metavar="ACTION")
        index = self.add_action(actions, "index", self.index, "write the index pages and repair what differs")
        which = index.add_mutually_exclusive_group()
        which.add_argument("--check", action="store_true", help="only list differences; exit code 1 if there are any")
        which.add_argument("--repair", action="store_true", help="the default; changed files are moved to .discarded/")
        index.add_argument("--json", action="store_true", help=f"one line of JSON; file names only if {KEY} is set")
        show = self.add_action(actions, "show", self.show, f"print the content of a private memory's file; needs {KEY}")
        show.add_argument("file", metavar="FILE", help="a path, or a path inside the vault's folder")

    def index(self, agent: Agent, *, check: bool, json: bool, **_: Any) -> int | None:
        if not agent.vault_path:
            raise Invalid("agent", f"{agent.label} has no vault: run 'manage.py project init {agent.label} --vault'")
        return self._check(agent, json=json) if check else self._repair(agent, json=json)

    def _check(self, agent: Agent, *, json: bool) -> int | None:
        with progress("Comparing", unit="files") as advance:
            found = comparing.whole(agent, advance)
        if json:
            self.result(_as_record(agent, found.differences, found.unknown))
        else:
            self._print(agent, found.differences, found.unknown)
        return FAILED if any(each.kind != comparing.COPY for each in found.differences) else None

    def _repair(self, agent: Agent, *, json: bool) -> int | None:
        with progress("Comparing", unit="files") as advance:
            done = comparing.repair(agent, progress=advance)
        kept = [{"from": shown_path(agent, path), "to": shown_path(agent, to)} for path, to in done.aside]
        if json:
            figures = {"mended": done.repaired, "indexed": done.indexed, "kept": kept}
            self.result(figures | _as_record(agent, done.left, done.unknown))
        else:
            for each in kept:
                self.say(f"{each['from']} was changed by hand, or is not the vault's file. It is kept as {each['to']}.")
            repaired, indexed = several(done.repaired, "difference"), several(done.indexed, "file")
            self.tell(f"{repaired} repaired, {indexed} listed in the index pages.")
            self._print(agent, done.left, done.unknown)
        return None if done.is_done else FAILED

    def _print(self, agent: Agent, differences: Sequence[comparing.Difference], unknown: int) -> None:
        for each in differences:
            memory = f"memory {each.number}" if each.number else "no memory"
            self.tell(f"{memory}  {shown_path(agent, each.path) or '(no file)'}  {_DESCRIPTIONS[each.kind]}")
        if not differences:
            self.tell("No differences.")
        if unknown:
            self.say(f"{several(unknown, 'other file')} in the folder, not changed.")

    def show(self, agent: Agent, *, file: str, **_: Any) -> None:
        agents_side(agent)  # or raise KeyRejected
        path = Path(file)
        if agent.vault_path and not path.exists():
            path = Path(agent.vault_path) / file
        opened = open_file(agent, read_file("file", str(path)))
        require_valid_key()  # the key may have ended meanwhile
        # A terminal gets no control characters. A file or pipe gets the exact content.
        self.stdout.write(visible(opened.content) if is_shown() else opened.content)
        if opened.tags:
            self.say(f"Tags: {', '.join(opened.tags)}")


def _as_record(agent: Agent, found: Sequence[comparing.Difference], unknown: int) -> dict[str, Any]:
    records = [{"id": each.number or None, "kind": each.kind, "path": shown_path(agent, each.path)} for each in found]
    return {"differences": records, "unknown": unknown}
