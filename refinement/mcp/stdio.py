"""MCP over standard input and output. Each line is one message. It becomes a request to `/mcp`, of this process or of a
service, so both ways have the same checks and limits."""

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import httpx
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import INTERNAL_ERROR

from memory.errors import Invalid
from refinement.mcp.messages import NAMED, VERSION_HEADER

TIMEOUT = 300.0  # seconds


def client(address: str, key: str) -> httpx.Client:
    """A client of the service at an address, or, without one, of the WSGI application in this process. Raises
    Invalid."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if address:
        return httpx.Client(base_url=_checked(address), headers=headers, timeout=TIMEOUT)
    settings.ALLOWED_HOSTS = ["localhost"]  # no other client reaches this process
    transport = httpx.WSGITransport(app=WSGIHandler())
    return httpx.Client(base_url="https://localhost", headers=headers, transport=transport)


def _checked(address: str) -> httpx.URL:
    with suppress(httpx.InvalidURL):
        url = httpx.URL(address.rstrip("/").removesuffix("/mcp"))
        if url.scheme in ("http", "https") and url.host:
            return url
    raise Invalid("--url", "must begin with https:// or http://, and a host")


def answers(lines: Iterable[bytes], service: httpx.Client) -> Iterator[str]:
    """The responses to messages, one line each. A notification has none."""
    version = ""  # that `initialize` has agreed on
    for line in filter(bytes.strip, lines):
        message = _parsed(line)
        try:
            response = service.post("/mcp", content=line, headers=_headers(message, version))
            answer = _parsed(response.content)
            if "jsonrpc" not in answer:  # it did not come from `/mcp`
                answer = _failed(_reason(answer, response.status_code))
        except httpx.HTTPError as error:
            answer = _failed(f"The service does not answer ({type(error).__name__}).")
        if "method" in message and "id" not in message:
            continue
        if answer.get("id") is None:  # the service refused before it read the message
            answer["id"] = message.get("id")
        if message.get("method") == "initialize" and "result" in answer:
            version = answer["result"]["protocolVersion"]
        yield json.dumps(answer)


def _reason(answer: dict[str, Any], status: int) -> str:
    """Why a request failed: what the API's error says, or the status."""
    match answer:
        case {"errors": [{"detail": str(detail)}, *_]}:
            return detail
    return f"The service answered with HTTP {status}."


def _headers(message: dict[str, Any], version: str) -> dict[str, str]:
    """The headers that repeat parts of a message."""
    method, params = message.get("method"), message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    modern = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    headers = {
        VERSION_HEADER: modern or version,
        "Mcp-Method": method,
        "Mcp-Name": params.get(NAMED.get(str(method), "")),
    }
    return {name: _encoded(value) for name, value in headers.items() if isinstance(value, str) and value}


def _encoded(value: str) -> str:
    is_plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?")
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return value if is_plain else f"=?base64?{encoded}?="


def _parsed(line: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _failed(reason: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": reason}}
