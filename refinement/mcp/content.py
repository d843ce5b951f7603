"""The prompt, the resources and the server that agents connect to."""

import re
from collections.abc import Mapping
from typing import Any

from refinement.mcp import tools
from refinement.mcp.inner import Api
from refinement.mcp.server import Prompt, Resource, Server

_MEMORY = re.compile(r"memory://(\d{1,18})")
_ENTRY = re.compile(r"memory://audit/(\d{1,18})")
_JSON, _TEXT = "application/json", "text/markdown"
_WORK = (
    "Now refine the memory: call the tool `knife` with `action` and `arguments`, as often as needed. When `batch_done` "
    "is true, call `begin_refinement` for the next batch. At the end, use the action `complete_refinement`."
)


def _refine(api: Api, _: Mapping[str, str]) -> list[dict[str, Any]]:
    """The briefing, as messages of the user: a prompt has no system message."""
    begun = tools.begin(api, {})
    texts = [message["content"] for message in begun["messages"]] + [_WORK]
    return [{"role": "user", "content": {"type": "text", "text": text}} for text in texts]


def _context(api: Api, uri: str) -> dict[str, Any] | None:
    return {"mimeType": _TEXT, "text": api.get("context")} if uri == "memory://context" else None


def _memory(api: Api, uri: str) -> dict[str, Any] | None:
    found = _MEMORY.fullmatch(uri)
    return found and {"mimeType": _TEXT, "text": api.get(f"memories/{found[1]}")["content"]}


def _entry(api: Api, uri: str) -> dict[str, Any] | None:
    found = _ENTRY.fullmatch(uri)
    return found and {"mimeType": _JSON, "text": tools.as_text(api.get(f"audit/{found[1]}"))}


PROMPT = {
    "name": "refine",
    "title": "Refine the memory",
    "description": "Your own model merges and shortens its memories, under limits, and with undo.",
}
RESOURCES = (
    Resource({"uri": "memory://context", "name": "context", "mimeType": _TEXT, "title": "Core memory"}, _context),
    Resource({"uriTemplate": "memory://{id}", "name": "memory", "mimeType": _TEXT}, _memory, is_template=True),
    Resource({"uriTemplate": "memory://audit/{seq}", "name": "entry", "mimeType": _JSON}, _entry, is_template=True),
)
SERVER = Server({tool.name: tool for tool in tools.ALL}, {"refine": Prompt(PROMPT, _refine)}, RESOURCES)
