"""Messages of the Model Context Protocol (MCP), which are JSON-RPC requests.

In the revisions up to 2025-11-25, a client begins with `initialize`. Since 2026-07-28, each request names its revision
and the client's capabilities.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY, jsonrpc, methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from rest_framework import status

VERSION_HEADER = "MCP-Protocol-Version"
UNSTATED = "2025-03-26"  # the revision of an HTTP request that names none
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # what the header Mcp-Name repeats
ONE_MESSAGE = "The body must be one JSON-RPC request or notification. Batches are not supported."


class McpError(Exception):
    """A JSON-RPC error. `message` and `data` have no content of memories. `status` is that of the HTTP response."""

    def __init__(self, code: int, message: str, data: Any = None, status: int = status.HTTP_400_BAD_REQUEST) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.status = code, message, data, status


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """A checked request. `id` is None for a notification, which gets no response."""

    id: int | str | None
    method: str
    params: Mapping[str, Any]
    version: str

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS

    def error(self, code: int, message: str, data: Any = None) -> McpError:
        """An error of this request. Earlier clients expect the HTTP status 200."""
        modern = status.HTTP_404_NOT_FOUND if code == jsonrpc.METHOD_NOT_FOUND else status.HTTP_400_BAD_REQUEST
        return McpError(code, message, data, modern if self.is_modern else status.HTTP_200_OK)


def read(body: Any, headers: Mapping[str, str]) -> Message:
    """Check the body of an HTTP request. Raises McpError.

    The models of `mcp_types` do not check params: they make up to 15 errors for each wrong value, so a body of 300 kB
    would take half a minute and gigabytes.
    """
    is_request = isinstance(body, dict) and "id" in body
    try:
        parsed = (jsonrpc.JSONRPCRequest if is_request else jsonrpc.JSONRPCNotification).model_validate(body)
    except ValidationError:
        raise McpError(jsonrpc.INVALID_REQUEST, ONE_MESSAGE) from None
    params = parsed.params or {}
    if not is_request:
        return Message(None, parsed.method, params, "")
    message = Message(body["id"], parsed.method, params, _version(parsed.method, params, headers))
    if (message.method, message.version) not in methods.CLIENT_REQUESTS:
        raise message.error(jsonrpc.METHOD_NOT_FOUND, "This version of MCP does not have this method.")
    if message.method in NAMED and not isinstance(params.get(NAMED[message.method]), str):
        raise message.error(jsonrpc.INVALID_PARAMS, f"params.{NAMED[message.method]} must be text.")
    if not isinstance(params.get("arguments") or {}, dict):
        raise message.error(jsonrpc.INVALID_PARAMS, "params.arguments must be an object.")
    return message


def _version(method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """The revision that a request uses. Raises McpError."""
    given, stated = params.get("_meta"), headers.get(VERSION_HEADER)
    meta: Mapping[str, Any] = given if isinstance(given, dict) else {}
    if PROTOCOL_VERSION_META_KEY not in meta and stated in (None, *HANDSHAKE_PROTOCOL_VERSIONS):
        asked = params.get("protocolVersion") if method == "initialize" else stated or UNSTATED
        return str(asked) if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        raise McpError(jsonrpc.INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}.")
    version = meta[PROTOCOL_VERSION_META_KEY]
    _require_same_headers(method, params, version, headers)
    if version not in MODERN_PROTOCOL_VERSIONS:
        data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": str(version)[:100]}
        raise McpError(jsonrpc.UNSUPPORTED_PROTOCOL_VERSION, "This server does not support this version of MCP.", data)
    return str(version)


def _require_same_headers(method: str, params: Mapping[str, Any], version: Any, headers: Mapping[str, str]) -> None:
    """Raise McpError if a header differs from the body, because proxies decide by the headers."""
    wanted = {VERSION_HEADER: version, "Mcp-Method": method}
    if NAMED.get(method) in params:
        wanted["Mcp-Name"] = params[NAMED[method]]
    for name, value in wanted.items():
        if _decoded(headers.get(name)) != value:
            raise McpError(jsonrpc.HEADER_MISMATCH, f"The header {name} must have the same value as the body.")


def _decoded(value: str | None) -> str | None:
    """A header's value. `=?base64?…?=` contains a text that a header cannot have."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
