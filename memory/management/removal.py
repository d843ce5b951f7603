"""What the commands that remove content for good share: one side asks, the agent's side agrees or declines."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

from django.core.management.base import CommandParser

from audit import disk
from audit.removals import Removal
from audit.trail import Actor
from config.commandline import Task, is_attended
from config.errors import FAILED, USAGE
from memory.access.authentication import agent_named, is_key_of
from memory.consent import removal_requests
from memory.errors import KeyRejected
from memory.models import Agent
from memory.writing import edits

KEY = "PALIMPSEST_AGENT_KEY"


class Removing(Task):
    """Asking needs a reason; carrying out or declining, the agent's own key in the environment. With both, at once."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept for ever, so without what is to go")
        parser.add_argument("--asked-by", default="", metavar="WHO", help="the tenant's owner who asks")
        parser.add_argument("--preview", action="store_true", help="say what would go, and change nothing")
        settle = parser.add_mutually_exclusive_group()
        settle.add_argument("--waiting", action="store_true", help="list the requests that wait for the agent's side")
        settle.add_argument("--agree", type=int, metavar="REQUEST", help=f"carry it out; needs the key in {KEY}")
        settle.add_argument("--decline", type=int, metavar="REQUEST", help=f"say no to it; needs the key in {KEY}")
        parser.add_argument("--yes", action="store_true", help="do not ask; needed where nobody can be asked")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    @abstractmethod
    def preview_of(self, agent: Agent, options: dict[str, Any]) -> Any:
        """The figures of what is asked for, or of the request that is agreed to."""

    @abstractmethod
    def ask(self, agent: Agent, options: dict[str, Any]) -> Removal: ...

    @abstractmethod
    def carry_out(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def show(self, figures: Any, *, as_json: bool) -> None: ...

    def objection(self, figures: Any, options: dict[str, Any]) -> str:
        """What keeps this from being carried out as it was called; empty for nothing."""
        return ""

    def afterwards(self, options: dict[str, Any]) -> None:
        """What follows once it is done, and told."""

    def run(self, *, agent: str, **options: Any) -> int | None:
        target = agent_named(agent)
        if options["waiting"]:
            self._list(target, as_json=options["json"])
        elif options["decline"] is not None:
            declined = removal_requests.decline(target, options["decline"], self._agents_side(target))
            self._tell(f"request {declined.number} was declined", {"declined": declined.number}, options)
        elif options["preview"]:
            self.show(self.preview_of(target, options), as_json=options["json"])
        elif options["agree"] is not None or os.environ.get(KEY):
            return self._carry_out(target, options)
        else:
            self._ask(target, agent, options)
        return None

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if not disk.fold_log():
            self.say(
                "The database's write-ahead log cannot be folded in while somebody reads, and holds what was removed, "
                "sealed, until it is: run this command with --waiting once nobody does."
            )

    def _ask(self, target: Agent, label: str, options: dict[str, Any]) -> None:
        self._require_reason(options)
        asked = self.ask(target, options)
        command = f"manage.py {self.__module__.rpartition('.')[2]} {label} --agree {asked.number}"
        told = f"request {asked.number} waits for the agent's side: {KEY}=… {command}"
        self._tell(told, {"request": asked.number, "entry": None}, options)

    def _carry_out(self, target: Agent, options: dict[str, Any]) -> int | None:
        actor = self._agents_side(target)
        if options["agree"] is None:
            self._require_reason(options)
        if not (options["yes"] or (is_attended() and not options["json"])):
            self.fail("this is for good: give --yes", USAGE)
        told = self.preview_of(target, options)
        if objection := self.objection(told, options):
            self.fail(f"{objection} Nothing was removed.", FAILED)
        if not self.agrees(lambda: self.show(told, as_json=False), yes=options["yes"]):
            self.say("nothing was removed")
            return FAILED
        with edits.locked(target):  # asked and done at once is one transaction
            request = options["agree"] if options["agree"] is not None else self.ask(target, options).number
            done = self.carry_out(target, request, actor, options)
        self.show(done, as_json=options["json"])
        self.stdout.flush()
        self.afterwards(options)
        return None

    def _agents_side(self, target: Agent) -> Actor:
        if not is_key_of(target, os.environ.get(KEY, "")):
            raise KeyRejected(f"The agent's side alone agrees or declines: set {KEY} to the agent's valid key.")
        return Actor.agent()

    def _require_reason(self, options: dict[str, Any]) -> None:
        if not options["reason"].strip():
            self.fail("--reason is needed", USAGE)

    def _list(self, target: Agent, *, as_json: bool) -> None:
        waiting = removal_requests.waiting(target)
        if as_json:
            self.result([_record(request) for request in waiting])
            return
        for each in waiting:
            what = f"memories {', '.join(map(str, each.memories))}" if each.memories else "the silo, whole"
            self.tell(
                f"request {each.number} of {each.asked_at:%Y-%m-%d %H:%M} UTC by {each.asked_by}, {what}: {each.reason}"
            )
        if not waiting:
            self.tell("no request waits")

    def _tell(self, line: str, record: dict[str, Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self.result(record)
        else:
            self.tell(line)


def _record(request: Removal) -> dict[str, Any]:
    return {
        "request": request.number,
        "operation": request.operation,
        "at": request.asked_at.isoformat(),
        "asked_by": request.asked_by,
        "reason": request.reason,
        "memories": list(request.memories),
    }
