"""What the Model Context Protocol's methods return. A server has tools, prompts and resources."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import methods
from mcp_types.jsonrpc import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from config import __version__
from refinement.mcp.inner import Api, Refused
from refinement.mcp.messages import McpError, Message
from refinement.mcp.tools import Tool

INFO = {"name": "palimpsest", "title": "Palimpsest", "version": __version__}
INSTRUCTIONS = (
    "This is your long-term memory. At the start of a task, call `context`. Call `search` before you ask the user "
    "something that you may know. Call `remember` when you learn something that will be of use later. If `context` "
    "says that core memory is over its budget, call `begin_refinement`."
)
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
CACHED = {"ttlMs": 0, "cacheScope": "private"}  # content of one agent
_CACHEABLE = {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"}
_CACHEABLE |= {"resources/read"}

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its description as listed, and the function that returns its messages."""

    listed: Mapping[str, Any]
    messages: Callable[[Api, Mapping[str, str]], list[Answer]]


@dataclass(frozen=True, slots=True)
class Resource:
    """Resources with one form of URI. `read` gets the URI, and returns None if it is of another form."""

    listed: Mapping[str, Any]
    read: Callable[[Api, str], Answer | None]
    is_template: bool = False


@dataclass(frozen=True)
class Server:
    """The tools, prompts and resources that one address offers."""

    tools: Mapping[str, Tool]
    prompts: Mapping[str, Prompt]
    resources: tuple[Resource, ...]
    capabilities: Mapping[str, Any] = field(default_factory=lambda: CAPABILITIES)

    def answer(self, message: Message, api: Api) -> Answer:
        """The result of a request. Raises McpError."""
        result = _METHODS[message.method](self, message, api)
        if message.is_modern:
            result = {"resultType": "complete"} | (CACHED if message.method in _CACHEABLE else {}) | result
            methods.validate_server_result(message.method, message.version, result)
        return result

    def initialize(self, message: Message, _: Api) -> Answer:
        about = {"serverInfo": INFO, "instructions": INSTRUCTIONS, "capabilities": dict(self.capabilities)}
        return {"protocolVersion": message.version, **about}

    def discover(self, _: Message, __: Api) -> Answer:
        versions = list(MODERN_PROTOCOL_VERSIONS)
        return {
            "supportedVersions": versions,
            "capabilities": dict(self.capabilities),
            "instructions": INSTRUCTIONS,
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
        }

    def call_tool(self, message: Message, api: Api) -> Answer:
        tool = self.tools.get(message.params["name"])
        if tool is None:
            raise McpError(INVALID_PARAMS, "This server has no tool with this name. List the tools.")
        try:
            data = tool.run(api, dict(message.params.get("arguments") or {}))
        except Refused as refused:  # the model can read the reason, and call again
            return _content(refused.data) | {"isError": True}
        return _content(data) | {"structuredContent": data, "isError": False}

    def get_prompt(self, message: Message, api: Api) -> Answer:
        prompt = self.prompts.get(message.params["name"])
        if prompt is None:
            raise McpError(INVALID_PARAMS, "This server has no prompt with this name. List the prompts.")
        return {
            "description": prompt.listed["description"],
            "messages": prompt.messages(api, message.params.get("arguments") or {}),
        }

    def read_resource(self, message: Message, api: Api) -> Answer:
        uri = str(message.params["uri"])
        for resource in self.resources:
            try:
                found = resource.read(api, uri)
            except Refused as refused:
                raise McpError(INVALID_PARAMS, "The resource cannot be read.", refused.data) from None
            if found is not None:
                return {"contents": [{"uri": uri, **found}]}
        raise McpError(INVALID_PARAMS, "This server has no resource with this URI.", {"uri": uri})

    def _listed(self, is_template: bool) -> list[Any]:
        return [dict(each.listed) for each in self.resources if each.is_template == is_template]


def _content(data: Any) -> Answer:
    return {"content": [{"type": "text", "text": json.dumps(data, ensure_ascii=False, default=str)}]}


_METHODS: dict[str, Callable[[Server, Message, Api], Answer]] = {
    "initialize": Server.initialize,
    "server/discover": Server.discover,
    "ping": lambda *_: {},
    "tools/list": lambda server, *_: {"tools": [tool.listed() for tool in server.tools.values()]},
    "tools/call": Server.call_tool,
    "prompts/list": lambda server, *_: {"prompts": [dict(each.listed) for each in server.prompts.values()]},
    "prompts/get": Server.get_prompt,
    "resources/list": lambda server, *_: {"resources": server._listed(False)},
    "resources/templates/list": lambda server, *_: {"resourceTemplates": server._listed(True)},
    "resources/read": Server.read_resource,
}
