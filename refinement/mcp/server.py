"""The results of MCP's methods. A server has tools, prompts and resources."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from mcp_types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from rest_framework.utils.encoders import JSONEncoder

from config import __version__
from refinement.mcp.api import Api, Refused
from refinement.mcp.messages import Message

REFUSED = -32010  # this server's own code: the API refused. `data` is the body of its response
INFO = {"name": "palimpsest", "title": "Palimpsest", "version": __version__}
INSTRUCTIONS = (
    "This is your long-term memory. At the start of a task, call `context`. Before you ask the user something that you "
    "may know, call `search`. When you learn something that will be useful later, call `remember`. If `context` says "
    "that core memory is over its budget, call `begin_refinement`."
)
MAX_ARGUMENTS = 100
NOT_SHARED = {"ttlMs": 0, "cacheScope": "private"}
_CACHEABLE = {"server/discover", "tools/list", "prompts/list"}
_CACHEABLE |= {"resources/list", "resources/templates/list", "resources/read"}

Json = dict[str, Any]


class Tool(NamedTuple):
    """A tool as clients see it, and the function that carries it out. The function returns structured content, or a
    text. It raises Refused."""

    listed: Mapping[str, Any]
    run: Callable[[Api, Json], Any]


class Prompt(NamedTuple):
    """A prompt as clients see it, and the function that returns its messages. The function raises Refused."""

    listed: Mapping[str, Any]
    messages: Callable[[Api], list[Json]]


class Resource(NamedTuple):
    """Resources with the same form of URI. `read` returns None for another form of URI. It raises Refused."""

    listed: Mapping[str, Any]
    read: Callable[[Api, str], Json | None]


@dataclass(frozen=True)
class Server:
    """What one address offers."""

    tools: Mapping[str, Tool]
    prompts: Mapping[str, Prompt]
    resources: tuple[Resource, ...]
    methods: ClassVar[Mapping[str, str]] = {
        "initialize": "initialize",
        "server/discover": "discover",
        "ping": "ping",
        "tools/list": "list_tools",
        "tools/call": "call_tool",
        "prompts/list": "list_prompts",
        "prompts/get": "get_prompt",
        "resources/list": "list_resources",
        "resources/templates/list": "list_templates",
        "resources/read": "read_resource",
    }

    def result(self, message: Message, api: Api) -> Json:
        """The result of a request. Raises McpError."""
        if message.method not in self.methods:
            raise message.error(METHOD_NOT_FOUND, "This server does not have this method.")
        result: Json = getattr(self, self.methods[message.method])(message, api)
        if message.is_modern:
            result = {"resultType": "complete"} | (NOT_SHARED if message.method in _CACHEABLE else {}) | result
        return result

    def initialize(self, message: Message, _: Api) -> Json:
        return {"protocolVersion": message.version, "serverInfo": INFO, **self._about()}

    def discover(self, _: Message, __: Api) -> Json:
        versions = {"supportedVersions": list(MODERN_PROTOCOL_VERSIONS)}
        return versions | self._about() | {"_meta": {"io.modelcontextprotocol/serverInfo": INFO}}

    def _about(self) -> Json:
        return {"capabilities": {"tools": {}, "prompts": {}, "resources": {}}, "instructions": INSTRUCTIONS}

    def ping(self, _: Message, __: Api) -> Json:
        return {}

    def list_tools(self, _: Message, __: Api) -> Json:
        return {"tools": [tool.listed for tool in self.tools.values()]}

    def list_prompts(self, _: Message, __: Api) -> Json:
        return {"prompts": [prompt.listed for prompt in self.prompts.values()]}

    def list_resources(self, _: Message, __: Api) -> Json:
        return {"resources": [each.listed for each in self.resources if "uri" in each.listed]}

    def list_templates(self, _: Message, __: Api) -> Json:
        return {"resourceTemplates": [each.listed for each in self.resources if "uriTemplate" in each.listed]}

    def call_tool(self, message: Message, api: Api) -> Json:
        tool = self.tools.get(message.params["name"])
        if tool is None:
            raise message.error(INVALID_PARAMS, "This server does not have this tool. List the tools.")
        given = message.params.get("arguments") or {}
        if len(given) > MAX_ARGUMENTS:
            raise message.error(INVALID_PARAMS, f"A tool has at most {MAX_ARGUMENTS} arguments.")
        try:
            data = tool.run(api, {name: value for name, value in given.items() if value is not None})
        except Refused as refused:  # the model can read the reason, and call again
            return {"content": [text(as_text(refused.data))], "isError": True}
        structured = {} if isinstance(data, str) else {"structuredContent": data}
        return {"content": [text(as_text(data))], **structured, "isError": False}

    def get_prompt(self, message: Message, api: Api) -> Json:
        prompt = self.prompts.get(message.params["name"])
        if prompt is None:
            raise message.error(INVALID_PARAMS, "This server does not have this prompt. List the prompts.")
        try:
            return {"description": prompt.listed["description"], "messages": prompt.messages(api)}
        except Refused as refused:
            raise message.error(REFUSED, refused.reason, refused.data) from None

    def read_resource(self, message: Message, api: Api) -> Json:
        uri = message.params["uri"]
        try:
            for resource in self.resources:
                found = resource.read(api, uri)
                if found is not None:
                    return {"contents": [{"uri": uri, **found}]}
        except Refused as refused:
            code = INVALID_PARAMS if refused.status == 404 else REFUSED
            raise message.error(code, refused.reason, {"uri": uri}) from None
        raise message.error(INVALID_PARAMS, "This server does not have a resource with this URI.", {"uri": uri})


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def as_text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data, cls=JSONEncoder, ensure_ascii=False)
