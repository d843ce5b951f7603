"""Messages of the Model Context Protocol: JSON-RPC requests of the revisions up to 2025-11-25, which begin with
`initialize`, and of 2026-07-28, in which each request says its version and its capabilities."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY, methods
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCNotification,
    JSONRPCRequest,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

OLDEST = "2025-03-26"  # the revision of a client that does not say one
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # what the header Mcp-Name repeats
_NO_ROUTE = "The message must be one JSON-RPC request or notification. Batches are not supported."


class McpError(Exception):
    """A request that is answered with a JSON-RPC error. `message` has no content of memories."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """A checked request. `id` is None for a notification, which gets no answer."""

    id: int | str | None
    method: str
    params: Mapping[str, Any]
    version: str

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS


def read(body: Any, headers: Mapping[str, str] | None) -> Message:
    """Check a message. `headers` are those of an HTTP request, or None if there are none (stdio). Raises McpError."""
    is_request = isinstance(body, dict) and "id" in body
    try:
        parsed = (JSONRPCRequest if is_request else JSONRPCNotification).model_validate(body)
    except ValidationError:
        raise McpError(INVALID_REQUEST, _NO_ROUTE) from None
    params = parsed.params or {}
    if not is_request:
        return Message(None, parsed.method, params, "")
    version = _version(parsed.method, params, headers)
    try:
        methods.validate_client_request(parsed.method, version, params)
    except KeyError:
        raise McpError(METHOD_NOT_FOUND, "This server does not know this method.") from None
    except ValidationError as wrong:
        raise McpError(INVALID_PARAMS, f"Invalid params: {_places(wrong)}.") from None
    return Message(body["id"], parsed.method, params, version)


def _version(method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None) -> str:
    """The revision that a request uses. Raises McpError."""
    meta = params.get("_meta")
    meta = meta if isinstance(meta, Mapping) else {}
    stated = (headers or {}).get("Mcp-Protocol-Version")
    if PROTOCOL_VERSION_META_KEY not in meta and (stated is None or stated in HANDSHAKE_PROTOCOL_VERSIONS):
        if method == "initialize":
            asked = params.get("protocolVersion")
            return asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        return stated or (OLDEST if headers is not None else LATEST_HANDSHAKE_VERSION)
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        raise McpError(INVALID_PARAMS, f"params._meta has no {' and no '.join(missing)}.")
    version = meta[PROTOCOL_VERSION_META_KEY]
    if headers is not None:
        _require_headers(method, params, version, headers)
    if version not in MODERN_PROTOCOL_VERSIONS:
        data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": str(version)}
        raise McpError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version.", data)
    return str(version)


def _require_headers(method: str, params: Mapping[str, Any], version: Any, headers: Mapping[str, str]) -> None:
    """Raise McpError if a header says something else than the body: a proxy would have sent the request elsewhere."""
    wanted = {"Mcp-Protocol-Version": version, "Mcp-Method": method}
    if method in NAMED and NAMED[method] in params:
        wanted["Mcp-Name"] = params[NAMED[method]]
    for name, value in wanted.items():
        if _decoded(headers.get(name)) != value:
            raise McpError(HEADER_MISMATCH, f"The header {name} must repeat the value of the body.")


def _decoded(value: str | None) -> str | None:
    """A header's value. A text that a header cannot hold comes as `=?base64?…?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _places(wrong: ValidationError) -> str:
    """Where the params are wrong. Their values are content, so they are not repeated."""
    places = [".".join(map(str, error["loc"])) + " " + error["type"] for error in wrong.errors(include_input=False)]
    return "; ".join(dict.fromkeys(places[:5])) or "they have a wrong form"
