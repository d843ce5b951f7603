"""The tools that a connected agent calls. Each is a path of the API, or a few."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.api import memories, recording
from refinement import tools as knife
from refinement.api.agent import ContextOut
from refinement.api.sessions import BriefingOut, CallOut
from refinement.mcp.inner import Api
from refinement.mcp.schemas import schema

Arguments = dict[str, Any]
READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
ENDS = WRITES | {"destructiveHint": True}
ALIASES = {"text": "content", "memory": "content", "query": "q"}
_ID = {"type": "integer", "minimum": 1, "description": "number of the memory"}
_ONCE = {
    "type": "string",
    "maxLength": 200,
    "description": "any text: if you repeat the call with it within a day, you get the first result",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `run` gets checked arguments, and returns structured content."""

    name: str
    title: str
    description: str
    run: Callable[[Api, Arguments], Any]
    input: Mapping[str, Any]
    output: Mapping[str, Any]
    annotations: Mapping[str, bool] = field(default_factory=lambda: READS)

    def listed(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": dict(self.input),
            "outputSchema": dict(self.output),
            "annotations": {"title": self.title, **self.annotations},
        }


def _of(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _with(form: Any, **extra: Any) -> dict[str, Any]:
    """The schema of a form, with more properties."""
    found = schema(form)
    return found | {"properties": {**extra, **found["properties"]}}


def _remember(api: Api, given: Arguments) -> Any:
    once = given.pop("idempotency_key", "")
    return api.call("POST", "memories", given, headers={"Idempotency-Key": once})


def _search(api: Api, given: Arguments) -> Any:
    return api.post("memories/search", given)


def _fetch(api: Api, given: Arguments) -> Any:
    """The document that ChatGPT expects: `id` is a text, as `search` returned it."""
    return api.get(f"memories/{_number(given)}", lineage="true")


def _context(api: Api, given: Arguments) -> Any:
    return api.get("context", **given, format="json")


def _list(api: Api, given: Arguments) -> Any:
    return api.get("memories", **given)


def _update(api: Api, given: Arguments) -> Any:
    return api.call("PATCH", f"memories/{_number(given)}", given)


def _forget(api: Api, given: Arguments) -> Any:
    number = _number(given)
    api.call("DELETE", f"memories/{number}")
    return {"forgotten": number, "undo": "restore"}


def _restore(api: Api, given: Arguments) -> Any:
    return api.post(f"memories/{_number(given)}/restore")


def _history(api: Api, given: Arguments) -> Any:
    seq = given.pop("entry", None)
    return api.get("audit" if seq is None else f"audit/{int(seq)}", **given)


def _begin(api: Api, given: Arguments) -> Any:
    """Open a session, or continue the open one, and return its briefing."""
    session = _open_session(api) or api.post("refinement-sessions", given)["id"]
    briefing = api.get(f"refinement-sessions/{session}/briefing")
    return {"session": session, **briefing}


def _knife(api: Api, given: Arguments) -> Any:
    session, action = given.get("session") or _open_session(api), given["action"]
    if session is None:
        raise NoSession
    path = f"refinement-sessions/{session}/tools/{action}"
    body = {"arguments": given.get("arguments")} | {name: given[name] for name in ("reply", "last") if name in given}
    return api.call("POST", path, body, headers={"Idempotency-Key": given.get("idempotency_key", "")})
