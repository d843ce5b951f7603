"""The tools that a connected agent calls. Each is one path of the API, or two. The docstring of a tool is its
description for the agent."""

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from memory.api.base.memory_out import MemoryOut
from memory.api.memories import FoundOut, FoundPageOut, LineageOut, ListQuery, MemoryIn, RevisionIn, SearchIn
from refinement import schedule
from refinement.api.agent import ContextQuery
from refinement.api.sessions import BriefingOut, CallIn, CallOut, SessionIn
from refinement.mcp import memory_tool, schemas
from refinement.mcp.api import Api, invalid
from refinement.mcp.schemas import Schema, an_object
from refinement.mcp.server import Json, Tool
from refinement.models import RefinementSession, held
from refinement.tools import TOOLS

ALIASES = {"text": "content", "memory": "content", "query": "q"}
MAX_TITLE = 80  # characters
_READS = {"readOnlyHint": True, "openWorldHint": False}
_WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


# --- the functions


def remember(api: Api, given: Json) -> Any:
    """Store one fact, decision or event in your long-term memory. Call it when you learn something that will be
    useful in later conversations. Write whole sentences, with names and dates."""
    once = str(given.pop("idempotency_key", ""))
    stored = api.call("POST", "memories", _named(given), once=once)
    return {name: value for name, value in stored.items() if name not in ("file", "no_file")}  # of use to people


def search(api: Api, given: Json) -> Any:
    """Find memories by their words, and by their meaning if you have an embedder. Call it before you ask the user
    something that you may know."""
    found = api.call("POST", "memories/search", _named(given))
    return {**found, "results": [_cited(each) for each in found["results"]]}


def fetch(api: Api, given: Json) -> Any:
    """Read one memory by its number, with the memories that it was made from."""
    found = api.get(f"memories/{_number(given, 'id')}", {"lineage": "true"})
    return {**_cited(found), "text": found["content"]}


def context(api: Api, given: Json) -> Any:
    """Read your core memory and the journal of the last days. Call it once at the start of a task."""
    agent = api.outer.agent
    figures = {"core_tokens": agent.core_tokens, "budget_tokens": agent.budget_tokens}
    return {"text": api.get("context", given | {"format": "text"}), **figures, "refinement_due": schedule.why(agent)}


def list_memories(api: Api, given: Json) -> Any:
    """List memories by number, one page at a time. To find words, call `search`."""
    return api.get("memories", given)


def update_memory(api: Api, given: Json) -> Any:
    """Change the text or the tags of a memory that is wrong or out of date. The history keeps the earlier text."""
    return api.call("PATCH", f"memories/{_number(given, 'id')}", _named(given))


def forget(api: Api, given: Json) -> Any:
    """Discard a memory that is no longer useful. You can undo this: `restore` brings it back."""
    number = _number(given, "id")
    api.call("DELETE", f"memories/{number}")
    return {"forgotten": number, "undo": "To bring it back, call `restore` with this id."}


def restore(api: Api, given: Json) -> Any:
    """Bring back a forgotten memory."""
    return api.call("POST", f"memories/{_number(given, 'id')}/restore")


def history(api: Api, given: Json) -> Any:
    """Read the audit trail: who changed what, and when. With `entry`, read one entry with its changes."""
    return api.get(f"audit/{_number(given, 'entry')}" if "entry" in given else "audit", given)


def begin_refinement(api: Api, given: Json) -> Any:
    """Open a refinement session, or continue the open one. You get a briefing: the memories, what to do, and the tools
    that you call with `knife`. Call it when core memory is over its budget. Every change can be undone."""
    row = RefinementSession.objects.filter(held(timezone.now()), agent=api.outer.agent, driver="runtime").first()
    number = row.number if row else api.call("POST", "refinement-sessions", given | {"driver": "runtime"})["id"]
    return {"session": number, **api.get(f"refinement-sessions/{number}/briefing")}


def knife(api: Api, given: Json) -> Any:
    """Make one edit in the open refinement session. `action` is the name of one of the briefing's tools, and
    `arguments` are its arguments. A refused edit changes nothing, and the result says why."""
    once, action = str(given.pop("idempotency_key", "")), given.pop("action", None)
    if not isinstance(action, str) or action not in TOOLS:
        raise invalid("action", f"must be one of: {', '.join(TOOLS)}")
    number = _number(given, "session") if "session" in given else _open_session(api)
    body: Json = {name: given.pop(name) for name in ("reply", "last") if name in given}
    body["arguments"] = given.pop("arguments", given)  # some models write the arguments beside `action`
    return api.call("POST", f"refinement-sessions/{number}/tools/{action}", body, once=once)


def memory(api: Api, given: Json) -> str:
    """Keep notes in text files under /memories. `view` shows a folder (`path`) or a file (`path`, `view_range`).
    `create` needs `path` and `file_text`; `str_replace` needs `path`, `old_str` and `new_str`; `insert` needs `path`,
    `insert_line` and `insert_text`; `delete` needs `path`; `rename` needs `old_path` and `new_path`."""
    command = given.pop("command", None)
    if not isinstance(command, str) or command not in memory_tool.COMMANDS:
        raise invalid("command", f"must be one of: {', '.join(memory_tool.COMMANDS)}")
    return str(api.run(lambda: memory_tool.run(api.outer.agent, api.outer.actor, command, given)))


def _open_session(api: Api) -> int:
    numbers = RefinementSession.objects.filter(agent=api.outer.agent, outcome="open").values_list("number", flat=True)
    for number in numbers:
        return number
    raise invalid("session", "no session is open: call `begin_refinement` first")


def _named(given: Json) -> Json:
    """The arguments, with the names of the API."""
    return {ALIASES.get(name, name): value for name, value in given.items()}


def _number(given: Json, name: str) -> int:
    """Take an argument that is a number. ChatGPT sends it as text."""
    number = str(given.pop(name, ""))
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise invalid(name, "must be a whole number")
    return int(number)


def _cited(memory: Json) -> Json:
    """A memory with what ChatGPT expects: a text as `id`, a title, and an address."""
    number, first = memory["id"], memory["content"].strip().partition("\n")[0]
    return {**memory, "id": str(number), "title": first[:MAX_TITLE], "url": f"memory://{number}"}


# --- what clients see


def _tool(run: Callable[[Api, Json], Any], title: str, given: Schema, out: Schema, hints: Json) -> Tool:
    """`out` is empty if the tool returns a text."""
    description = " ".join(str(run.__doc__).split())
    about = {"name": run.__name__, "title": title, "description": description, "inputSchema": given}
    about |= {"outputSchema": out} if out else {}
    return Tool({**about, "annotations": {"title": title, **hints}}, run)


def _text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


_WHOLE: Schema = {"type": "integer"}
_ID: Schema = {"type": ["integer", "string"], "description": "number of the memory"}
_ONCE = _text("any text: if you repeat the call with it within a day, you get the first result", maxLength=200)
_ACTION = _text("name of one of the briefing's tools", enum=list(TOOLS))
_SESSION = {"type": "integer", "description": "number of the session; default: the open one"}
_CITED = {"id": _text("number of the memory"), "title": _text("its first words"), "url": _text()}
_DUE = _text("why a refinement is due now; empty if none is due")


def _cited_form(form: Any, *required: str, **more: Schema) -> Schema:
    found = schemas.of(form)
    return an_object(*found["required"], "title", "url", *required, **found["properties"] | _CITED | more)


_MEMORY = schemas.of(MemoryOut)
_FOUND = schemas.of(FoundPageOut)["properties"] | {"results": {"type": "array", "items": _cited_form(FoundOut)}}
_PAGE = an_object("results", results={"type": "array", "items": _MEMORY}, next={"type": ["string", "null"]})
_CONTEXT = an_object("text", text=_text(), core_tokens=_WHOLE, budget_tokens=_WHOLE, refinement_due=_DUE)
_CONTEXT_IN = an_object(**{k: v for k, v in schemas.of(ContextQuery)["properties"].items() if k != "format"})
_ENTRY: Schema = {"type": "integer", "description": "number of one entry, to read its changes; default: list all"}
_HISTORY = an_object(
    entry=_ENTRY,
    memory={"type": "integer", "description": "only entries that changed this memory"},
    session={"type": "integer", "description": "only entries of this refinement session"},
    cursor=_text("`next` of the previous page"),
    limit={"type": "integer", "minimum": 1, "maximum": 500},
)
_COMMAND = _text(enum=list(memory_tool.COMMANDS))
_FIELDS = {
    name: each for _, form in memory_tool.COMMANDS.values() for name, each in schemas.of(form)["properties"].items()
}

_REMEMBER = schemas.extended(MemoryIn, idempotency_key=_ONCE)
_FETCHED = _cited_form(LineageOut, "text", text=_text("the same as `content`"))
_FORGOTTEN = an_object("forgotten", "undo", forgotten=_WHOLE, undo=_text())
_BEGIN = an_object(mode=schemas.of(SessionIn)["properties"]["mode"])
_KNIFE = schemas.extended(CallIn, ("action",), action=_ACTION, session=_SESSION, idempotency_key=_ONCE)

ALL = (
    _tool(remember, "Remember", _REMEMBER, _MEMORY, _WRITES),
    _tool(search, "Search memories", schemas.of(SearchIn), an_object(*_FOUND, **_FOUND), _READS),
    _tool(fetch, "Read a memory", an_object("id", id=_ID), _FETCHED, _READS),
    _tool(context, "Core memory", _CONTEXT_IN, _CONTEXT, _READS),
    _tool(list_memories, "List memories", schemas.of(ListQuery), _PAGE, _READS),
    _tool(update_memory, "Change a memory", schemas.extended(RevisionIn, ("id",), id=_ID), _MEMORY, _WRITES),
    _tool(forget, "Forget a memory", an_object("id", id=_ID), _FORGOTTEN, _WRITES),
    _tool(restore, "Restore a memory", an_object("id", id=_ID), _MEMORY, _WRITES),
    _tool(history, "History", _HISTORY, {"type": "object"}, _READS),
    _tool(
        begin_refinement,
        "Begin a refinement",
        _BEGIN,
        schemas.extended(BriefingOut, ("session",), session=_WHOLE),
        _WRITES,
    ),
    _tool(knife, "Refine", _KNIFE, schemas.of(CallOut), _WRITES),
    _tool(memory, "Memory files", an_object("command", command=_COMMAND, **_FIELDS), {}, _WRITES),
)
