"""Palimpsest's own prompt and resources, and the server with them and the tools."""

import re
from typing import Any

from refinement.mcp import tools
from refinement.mcp.api import Api
from refinement.mcp.server import Json, Prompt, Resource, Server, as_text, text

_MEMORY = re.compile(r"memory://([0-9]{1,16})")
_ENTRY = re.compile(r"memory://audit/([0-9]{1,16})")
_JSON, _TEXT = "application/json", "text/markdown"
_WORK = (
    "Now refine the memory. Make each edit with the tool `knife`: `action` is the name of one of these tools, and "
    "`arguments` are its arguments. If a result has `batch_done`, call `begin_refinement` for the next batch. At the "
    "end, call `knife` with the action `complete_refinement`. The tools:\n"
)


def _refine(api: Api) -> list[Json]:
    """The briefing as messages of the user, because a prompt has no system message."""
    begun = tools.begin_refinement(api, {})
    texts = [message["content"] for message in begun["messages"]] + [_WORK + as_text(begun["tools"])]
    return [{"role": "user", "content": text(each)} for each in texts]


def _context(api: Api, uri: str) -> Json | None:
    return {"mimeType": _TEXT, "text": api.get("context")} if uri == "memory://context" else None


def _memory(api: Api, uri: str) -> Json | None:
    found = _MEMORY.fullmatch(uri)
    return {"mimeType": _TEXT, "text": api.get(f"memories/{found[1]}")["content"]} if found else None


def _entry(api: Api, uri: str) -> Json | None:
    found = _ENTRY.fullmatch(uri)
    return {"mimeType": _JSON, "text": as_text(api.get(f"audit/{found[1]}"))} if found else None


def _listed(name: str, description: str, mime_type: str, **uri: str) -> dict[str, Any]:
    return {**uri, "name": name, "title": name.capitalize(), "description": description, "mimeType": mime_type}


PROMPT = {
    "name": "refine",
    "title": "Refine your memory",
    "description": "Merge and shorten memories with your own model, under limits, and with undo",
}
RESOURCES = (
    Resource(_listed("context", "Core memory and the last days", _TEXT, uri="memory://context"), _context),
    Resource(_listed("memory", "One memory", _TEXT, uriTemplate="memory://{id}"), _memory),
    Resource(_listed("entry", "One entry of the audit trail", _JSON, uriTemplate="memory://audit/{seq}"), _entry),
)
SERVER = Server({tool.listed["name"]: tool for tool in tools.ALL}, {"refine": Prompt(PROMPT, _refine)}, RESOURCES)
