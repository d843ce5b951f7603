"""The tools that a connected agent calls. Each is a path of the API, or a few."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memory.api.memories import FiltersIn, FoundPageOut, LineageOut, ListQuery, MemoryIn, RevisionIn, SearchIn, StoredOut
from memory.api.base.memory_out import MemoryOut
from refinement.api.agent import ContextOut, ContextQuery
from refinement.api.sessions import BriefingOut, CallIn, CallOut, SessionIn
from refinement.mcp.inner import Api, Refused
from refinement.mcp.schemas import schema
from refinement.models import Outcome
from refinement.tools import NAMES

Arguments = dict[str, Any]
Schema = dict[str, Any]
READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
ALIASES = {"text": "content", "memory": "content", "query": "q"}
_ID: Schema = {"type": ["integer", "string"], "description": "number of the memory"}
_ONCE: Schema = {
    "type": "string",
    "maxLength": 200,
    "description": "any text: if you repeat the call with it within a day, you get the first result",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `run` gets the arguments, and returns structured content. Raises Refused."""

    name: str
    title: str
    description: str
    run: Callable[[Api, Arguments], Any]
    input: Schema
    output: Schema
    annotations: Mapping[str, bool]

    def listed(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": {"title": self.title, **self.annotations},
        }


def as_text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, default=str)


def _with(form: Any, required: tuple[str, ...] = (), **extra: Schema) -> Schema:
    """The schema of a form, with more properties."""
    found = schema(form)
    names = [*required, *found.get("required", ())]
    return found | {"properties": {**extra, **found["properties"]}} | ({"required": names} if names else {})


def _page(item: Any) -> Schema:
    results = {"type": "array", "items": schema(item)}
    return {"type": "object", "properties": {"results": results, "next": {"type": ["string", "null"]}}}


def _number(given: Arguments) -> str:
    """The number of a memory. It may be a text, as ChatGPT sends it."""
    number = str(given.pop("id", ""))
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Refused(422, {"code": "invalid", "detail": "`id` must be the number of a memory", "attr": "id"})
    return number


def _named(given: Arguments) -> Arguments:
    """The arguments under the names of the API."""
    return {ALIASES.get(name, name): value for name, value in given.items()}


def _once(given: Arguments) -> dict[str, str]:
    return {"Idempotency_Key": str(given.pop("idempotency_key", ""))}


def _remember(api: Api, given: Arguments) -> Any:
    headers = _once(given)
    return api.call("POST", "memories", _named(given), headers=headers)


def _search(api: Api, given: Arguments) -> Any:
    return api.post("memories/search", _named(given))


def _fetch(api: Api, given: Arguments) -> Any:
    return api.get(f"memories/{_number(given)}", lineage="true")


def _context(api: Api, given: Arguments) -> Any:
    return api.get("context", **given | {"format": "json"})


def _list(api: Api, given: Arguments) -> Any:
    return api.get("memories", **given)


def _update(api: Api, given: Arguments) -> Any:
    number = _number(given)
    return api.call("PATCH", f"memories/{number}", _named(given))


def _forget(api: Api, given: Arguments) -> Any:
    number = _number(given)
    api.call("DELETE", f"memories/{number}")
    return {"forgotten": int(number), "undo": "Call restore with this id."}


def _restore(api: Api, given: Arguments) -> Any:
    return api.post(f"memories/{_number(given)}/restore")


def _history(api: Api, given: Arguments) -> Any:
    entry = given.pop("entry", None)
    return api.get("audit" if entry is None else f"audit/{int(entry)}", **given)


def _open_session(api: Api) -> int | None:
    """The number of the session that is open now. Only the newest one can be open."""
    newest = api.get("refinement-sessions", limit=1)["results"]
    return newest[0]["id"] if newest and newest[0]["outcome"] == Outcome.OPEN else None


def begin(api: Api, given: Arguments) -> Any:
    """Open a session, or continue the open one, and return its briefing."""
    session = _open_session(api) or api.post("refinement-sessions", given)["id"]
    return {"session": session, **api.get(f"refinement-sessions/{session}/briefing")}


def _knife(api: Api, given: Arguments) -> Any:
    headers, session = _once(given), given.pop("session", None) or _open_session(api)
    action = str(given.pop("action", ""))
    if session is None or action not in NAMES:
        raise Refused(409, {"code": "no_session", "detail": "Call begin_refinement first, and name an action."})
    return api.call("POST", f"refinement-sessions/{int(session)}/tools/{action}", given, headers=headers)


_SESSION: Schema = {"type": "integer", "description": "number of the session; default: the open one"}
_ACTION: Schema = {"type": "string", "enum": list(NAMES), "description": "a tool of the briefing"}
_FORGOTTEN: Schema = {
    "type": "object",
    "properties": {"forgotten": {"type": "integer"}, "undo": {"type": "string"}},
    "required": ["forgotten", "undo"],
}
_ENTRY: Schema = {"type": "integer", "description": "number of one entry; default: a list, newest first"}
_ENTRIES: Schema = {"type": "object", "properties": {"entry": _ENTRY, "cursor": {"type": "string"}}}

ALL = (
    Tool(
        "remember",
        "Remember",
        "Store one fact, decision or event in your long-term memory. Call it when you learn something that will be of "
        "use in later conversations. Write whole sentences with names and dates.",
        _remember,
        _with(MemoryIn, idempotency_key=_ONCE),
        schema(StoredOut),
        WRITES,
    ),
    Tool(
        "search",
        "Search memories",
        "Find memories by words. Call it before you ask the user something that you may know.",
        _search,
        schema(SearchIn),
        schema(FoundPageOut),
        READS,
    ),
    Tool(
        "fetch",
        "Read a memory",
        "Read one memory by its number, with the memories that it was made from.",
        _fetch,
        {"type": "object", "properties": {"id": _ID}, "required": ["id"]},
        schema(LineageOut),
        READS,
    ),
    Tool(
        "context",
        "Core memory",
        "Read your core memory and the journal of the last days. Call it once at the start of a task.",
        _context,
        schema(ContextQuery),
        schema(ContextOut),
        READS,
    ),
    Tool(
        "list_memories",
        "List memories",
        "List memories by number, a page at a time. To find words, call `search`.",
        _list,
        schema(ListQuery),
        _page(MemoryOut),
        READS,
    ),
    Tool(
        "update_memory",
        "Change a memory",
        "Change the text or the tags of a memory, when it is wrong or out of date. The earlier text is kept in the "
        "history.",
        _update,
        _with(RevisionIn, ("id",), id=_ID),
        schema(MemoryOut),
        WRITES,
    ),
    Tool(
        "forget",
        "Forget a memory",
        "Discard a memory that is no longer of use. This can be undone: the memory is kept, and `restore` brings it "
        "back.",
        _forget,
        {"type": "object", "properties": {"id": _ID}, "required": ["id"]},
        _FORGOTTEN,
        WRITES,
    ),
    Tool(
        "restore",
        "Restore a memory",
        "Bring back a memory that was forgotten.",
        _restore,
        {"type": "object", "properties": {"id": _ID}, "required": ["id"]},
        schema(MemoryOut),
        WRITES,
    ),
    Tool(
        "history",
        "History",
        "Read the audit trail: who changed what, and when. With `entry`, read one entry with its changes.",
        _history,
        _ENTRIES,
        {"type": "object"},
        READS,
    ),
    Tool(
        "begin_refinement",
        "Begin a refinement",
        "Open a refinement session, or continue the open one. Returns a briefing: what to merge, and the actions of "
        "`knife`. Call it when core memory is over its budget. Every change can be undone.",
        begin,
        schema(SessionIn),
        _with(BriefingOut, ("session",), session={"type": "integer"}),
        WRITES,
    ),
    Tool(
        "knife",
        "Refine",
        "Make one edit of the open refinement session. `action` is the name of a tool of the briefing, and `arguments` "
        "are its arguments. A refused edit changes nothing, and the result says why.",
        _knife,
        _with(CallIn, ("action",), action=_ACTION, session=_SESSION, idempotency_key=_ONCE),
        schema(CallOut),
        WRITES,
    ),
)
