"""The base class of the commands `redact` and `erase_agent`. Somebody requests a removal, and the agent's side agrees
or declines."""

import os
from abc import abstractmethod
from typing import Any

from django.core.management.base import CommandParser

from audit import disk
from audit.consent import REMOVALS, Request
from audit.trail import Actor
from config import PROGRAM
from config.commandline import Task, is_attended
from config.errors import FAILED, USAGE
from memory.access.authentication import agent_named, new_request
from memory.consent import requests
from memory.errors import TrailChanged
from memory.management.agent_command import KEY, agents_side
from memory.models import Agent
from memory.writing import edits


class RemovalCommand(Task):
    """A command that requests a removal, carries it out or declines it. A request must have a reason. To carry out or
    decline a request, the command needs the agent's key. With a reason and the key, the command requests the removal
    and carries it out at once."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is, such as acme/ada")
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason; kept permanently; quote no content")
        parser.add_argument("--asked-by", default="", metavar="WHO", help="the tenant's owner who requests the removal")
        parser.add_argument("--preview", action="store_true", help="show what would be removed, and change nothing")
        settle = parser.add_mutually_exclusive_group()
        settle.add_argument("--waiting", action="store_true", help="list the requests that wait for the agent's side")
        settle.add_argument("--agree", type=int, metavar="REQUEST", help=f"carry out the request; needs {KEY}")
        settle.add_argument("--decline", type=int, metavar="REQUEST", help=f"decline the request; needs {KEY}")
        parser.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    @abstractmethod
    def preview(self, agent: Agent, options: dict[str, Any]) -> Any:
        """Return the figures of the removal that the options describe. If the options name a request, return the
        figures of this request."""

    @abstractmethod
    def request(self, agent: Agent, options: dict[str, Any]) -> Request: ...

    @abstractmethod
    def remove(self, agent: Agent, request: int, actor: Actor, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def show(self, figures: Any, *, as_json: bool) -> None: ...

    def objection(self, figures: Any, options: dict[str, Any]) -> str:
        """Return the reason why the removal cannot be carried out with these options. Return "" if the removal can be
        carried out."""
        return ""

    def run(self, *, agent: str, **options: Any) -> int | None:
        target = agent_named(agent)
        if options["waiting"]:
            self._list(target, as_json=options["json"])
        elif options["decline"] is not None:
            declined = requests.deny(target, options["decline"], agents_side(target))
            self._tell(f"request {declined.number} was declined", {"declined": declined.number}, options)
        elif options["preview"]:
            self.show(self.preview(target, options), as_json=options["json"])
        elif options["agree"] is None and not options["reason"].strip():
            self.fail("--reason is required", USAGE)
        elif options["agree"] is not None or os.environ.get(KEY):
            return self.carry_out(target, options)
        else:
            self._request(target, options)
        return None

    def handle(self, *args: Any, **options: Any) -> None:
        with new_request():
            super().handle(*args, **options)
        if not disk.empty_log():
            later = "Run this command with --waiting later to clear it."
            self.say(f"The write-ahead log still has the sealed content. {later}")

    def _request(self, agent: Agent, options: dict[str, Any]) -> None:
        number = self.request(agent, options).number
        command = f"{PROGRAM} {self.__module__.rpartition('.')[2]} {agent.label} --agree {number}"
        waits = f"request {number} waits for the agent's side: {KEY}=… {command}"
        self._tell(waits, {"request": number, "entry": None}, options)

    def carry_out(self, agent: Agent, options: dict[str, Any]) -> int | None:
        actor, number = agents_side(agent), options["agree"]
        if not (options["yes"] or (is_attended() and not options["json"])):
            self.fail("this cannot be undone: confirm it with --yes", USAGE)
        figures = self.preview(agent, options)
        if objection := self.objection(figures, options):
            self.fail(f"{objection} Nothing was removed.", FAILED)
        if not self.agrees(lambda: self.show(figures, as_json=False), yes=options["yes"]):
            self.say("Nothing was removed.")
            return FAILED
        with edits.locked(agent) as row:  # one transaction has the request and the removal
            number = self.request(row, options).number if number is None else number
            done = self.remove(row, number, actor, options)
            if done.memories != figures.memories:  # SQL may have shown another request
                raise TrailChanged("Something changed after the preview. Nothing was removed.")
        self.show(done, as_json=options["json"])
        self.stdout.flush()
        return None

    def _list(self, agent: Agent, *, as_json: bool) -> None:
        waiting = requests.waiting(agent, *REMOVALS)
        if as_json:
            self.result([_record(request) for request in waiting])
            return
        for each in waiting:
            what = f"memories {', '.join(map(str, each.memories))}" if each.memories else "the whole silo"
            what += f", only the version of entry {each.version}" if each.version else ""
            by = f"{each.asked_at:%Y-%m-%d %H:%M} UTC by {each.asked_by}"
            self.tell(f"request {each.number} of {by}, {what}: {each.reason}")
        if not waiting:
            self.tell("no requests are waiting")

    def _tell(self, line: str, record: dict[str, Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self.result(record)
        else:
            self.tell(line)


def _record(request: Request) -> dict[str, Any]:
    record = {"request": request.number, "operation": request.operation, "at": request.asked_at.isoformat()}
    return record | {"asked_by": request.asked_by, "reason": request.reason, "memories": list(request.memories)}
