"""What the official test suite calls by name: tools, prompts and resources with fixed results.

Palimpsest sends no notifications and asks clients for nothing, so only the tests have the streams and the questions
here. Everything else (reading a message, versions, headers, lists, errors) is the product's own code.
"""

import base64
import json
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from django.core import signing
from django.http import HttpResponse, StreamingHttpResponse
from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY
from mcp_types.jsonrpc import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from rest_framework.request import Request
from rest_framework.response import Response

from refinement.mcp.api import Api
from refinement.mcp.messages import Message, read
from refinement.mcp.server import Json, Prompt, Resource, Server, Tool, text
from refinement.mcp.views import Mcp

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
        "53de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
SOUND = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\0\0\0\0").decode()
PAUSE = 0.05  # seconds
ANSWER_SECONDS = 10
waiting: dict[str, queue.Queue[Json]] = {}  # questions to earlier clients, by id


def image() -> Json:
    return {"type": "image", "data": PIXEL, "mimeType": "image/png"}


def embedded(uri: str, mime_type: str, content: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": content}}


CONTENTS: dict[str, list[Json]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}
ERROR = "This tool intentionally returns an error for testing"


# --- questions to the client


def ask(message: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(content: str, limit: int = 100) -> Json:
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": text(content)}], "maxTokens": limit},
    }


STRING: Json = {"type": "string"}
NAME = ask("What is your name?", name=STRING)
ROOTS: Json = {"method": "roots/list", "params": {}}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
ANY_OF = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)]
QUESTIONS: dict[str, Callable[[Json], Json]] = {  # of a tool to an earlier client
    "test_sampling": lambda given: sample(given.get("prompt", "")),
    "test_elicitation": lambda given: ask(given.get("message", ""), username=STRING, email=STRING),
    "test_elicitation_sep1034_defaults": lambda _: ask(
        "Please review",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": lambda _: ask(
        "Please choose",
        untitledSingle={"type": "string", "enum": OPTIONS},
        titledSingle={"type": "string", "oneOf": TITLED},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": ANY_OF}},
    ),
}
INPUTS: dict[str, dict[str, Json]] = {  # what a tool needs from a newer client
    "test_input_required_result_elicitation": {"user_name": NAME},
    "test_input_required_result_sampling": {"capital_question": sample("What is the capital of France?")},
    "test_input_required_result_list_roots": {"client_roots": ROOTS},
    "test_input_required_result_request_state": {"confirm": ask("Please confirm", ok={"type": "boolean"})},
    "test_input_required_result_tampered_state": {"confirm": ask("Please confirm", ok={"type": "boolean"})},
    "test_input_required_result_multiple_inputs": {
        "user_name": NAME,
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    },
    "test_input_required_result_capabilities": {"user_name": NAME, "greeting": sample("Generate a greeting", 50)},
    "test_input_required_result_prompt": {"user_context": ask("What context should the prompt use?", context=STRING)},
}
STEPS = [
    {"step1": ask("Step 1: What is your name?", name=STRING)},
    {"step2": ask("Step 2: What is your favorite color?", color=STRING)},
]
WITH_STATE = {f"test_input_required_result_{name}" for name in ("request_state", "tampered_state", "multiple_inputs")}
CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def required(requests: Mapping[str, Json], state: Any = None) -> Json:
    found: Json = {"resultType": "input_required", "inputRequests": dict(requests)}
    return found | ({} if state is None else {"requestState": signing.dumps(state)})


def state_of(message: Message) -> Any:
    try:
        return signing.loads(str(message.params.get("requestState", "")))
    except signing.BadSignature:
        raise message.error(INVALID_PARAMS, "requestState was changed.") from None


def inputs(message: Message) -> Json | None:
    """The questions of a tool or prompt, until a client has answered them."""
    name = message.params["name"]
    answers = message.params.get("inputResponses") or {}
    if name == "test_input_required_result_multi_round":
        done = state_of(message) if answers else 0
        return required(STEPS[done], done + 1) if done < len(STEPS) else None
    able = message.params["_meta"][CLIENT_CAPABILITIES_META_KEY]
    wanted = {key: each for key, each in INPUTS[name].items() if CAPABILITIES[each["method"]] in able}
    if not all(isinstance(answers.get(key), dict) and answers[key] for key in wanted):
        return required(wanted, "state" if name in WITH_STATE else None)
    if name in WITH_STATE:
        state_of(message)
    return None


# --- the server


def listed(name: str) -> Json:
    return {"name": name, "description": f"Fixture {name}", "inputSchema": {"type": "object", "properties": {}}}


LOGGING = ("test_tool_with_logging", "test_logging_tool")
STREAMED = (*LOGGING, "test_tool_with_progress", "test_streaming_elicitation", *QUESTIONS)
TOOLS = [*CONTENTS, "test_error_handling", "test_missing_capability", *STREAMED, *INPUTS]
TOOLS += ["test_input_required_result_multi_round"]


class FixtureServer(Server):
    methods: ClassVar[Mapping[str, str]] = Server.methods | {
        "completion/complete": "complete",
        "logging/setLevel": "ping",
        "resources/subscribe": "ping",
        "resources/unsubscribe": "ping",
    }

    def _about(self) -> Json:
        about = super()._about()
        return about | {"capabilities": about["capabilities"] | {"completions": {}, "logging": {}}}

    def complete(self, _: Message, __: Api) -> Json:
        return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}

    def call_tool(self, message: Message, api: Api) -> Json:
        name = message.params["name"]
        if name == "test_missing_capability":
            data = {"requiredCapabilities": {"sampling": {}}}
            raise message.error(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling.", data)
        if name not in TOOLS:
            return super().call_tool(message, api)
        if "input_required" in name and (wanted := inputs(message)):
            return wanted
        if name == "test_error_handling":
            return {"content": [text(ERROR)], "isError": True}
        return {"content": CONTENTS.get(name) or [text(f"state-ok {json.dumps(message.params.get('inputResponses'))}")]}

    def get_prompt(self, message: Message, api: Api) -> Json:
        if "input_required" in message.params["name"] and (wanted := inputs(message)):
            return wanted
        return self._prompts(message.params.get("arguments") or {}).get(message.params["name"]) or super().get_prompt(
            message, api
        )

    def _prompts(self, given: Mapping[str, str]) -> dict[str, Json]:
        arguments = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        contents = {
            "test_simple_prompt": [text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments": [text(arguments)],
            "test_prompt_with_embedded_resource": [
                embedded(str(given.get("resourceUri")), "text/plain", "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image": [image(), text("Please analyze the image above.")],
            "test_input_required_result_prompt": [text("The context is known.")],
        }
        return {
            name: {"messages": [{"role": "user", "content": each} for each in parts]}
            for name, parts in contents.items()
        }


def static(uri: str, **content: str) -> Resource:
    about = {"uri": uri, "name": uri, "description": "A fixture", "mimeType": content["mimeType"]}
    return Resource(about, lambda _, asked: content if asked == uri else None)


def from_template(_: Api, uri: str) -> Json | None:
    parts = uri.split("/")
    if parts[:3] != ["test:", "", "template"] or len(parts) != 5:
        return None
    data = {"id": parts[3], "templateTest": True, "data": f"Data for ID: {parts[3]}"}
    return {"mimeType": "application/json", "text": json.dumps(data)}


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}
SERVER = FixtureServer(
    {name: Tool(listed(name), lambda *_: {}) for name in TOOLS},
    {
        name: Prompt(
            {
                "name": name,
                "description": f"Fixture {name}",
                "arguments": [{"name": each, "description": each, "required": True} for each in arguments],
            },
            lambda _: [],
        )
        for name, arguments in PROMPTS.items()
    },
    (
        static("test://static-text", mimeType="text/plain", text="This is the content of the static text resource."),
        static("test://static-binary", mimeType="image/png", blob=PIXEL),
        static("test://watched-resource", mimeType="text/plain", text="It never changes."),
        Resource(
            {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "A fixture"}, from_template
        ),
    ),
)


class Fixtures(Mcp):
    """The view, with streams of events for tools that send notifications or questions."""

    server = SERVER

    def post(self, request: Request) -> Any:
        body = request.data
        if isinstance(body, dict) and "method" not in body and body.get("id") in waiting:
            waiting[body["id"]].put(body)
            return Response(status=202)
        name = body.get("params", {}).get("name") if isinstance(body, dict) else ""
        if name in STREAMED:
            message = read(body, request.headers)
            return StreamingHttpResponse(_events(message), content_type="text/event-stream")
        return super().post(request)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if isinstance(response, StreamingHttpResponse):
            self.headers = {}
            return response  # type: ignore[return-value]
        return super().finalize_response(request, response, *args, **kwargs)  # type: ignore[no-any-return]


def _events(message: Message) -> Iterator[bytes]:
    """The notifications or the question of a tool, and then its result."""
    name, said = message.params["name"], f"{message.params['name']} is done"
    if name in QUESTIONS:
        number = f"{name}/{message.id}/{time.monotonic()}"
        waiting[number] = queue.Queue()
        yield _event({"id": number, **QUESTIONS[name](message.params.get("arguments") or {})})
        answer = waiting[number].get(timeout=ANSWER_SECONDS)["result"]
        said = f"LLM response: {answer.get('content', {}).get('text')}" if name == "test_sampling" else ""
        said = said or f"User response: {json.dumps(answer)}"
        said = (
            f"Elicitation completed: action={answer.get('action')}, content={json.dumps(answer.get('content'))}"
            if ("sep1" in name)
            else said
        )
    elif name == "test_streaming_elicitation":
        yield _event({"id": message.id, "result": required({"user_name": NAME})})
        return
    else:
        for place in range(3):
            yield from _notifications(name, message, place)
            time.sleep(PAUSE)
    result: Json = {"content": [text(said)]} | ({"resultType": "complete"} if message.is_modern else {})
    yield _event({"id": message.id, "result": result})


def _notifications(name: str, message: Message, place: int) -> Iterator[bytes]:
    meta = message.params.get("_meta") or {}
    if name in LOGGING and (not message.is_modern or LOG_LEVEL_META_KEY in meta):
        data = ("Tool execution started", "Tool processing data", "Tool execution completed")[place]
        yield _event({"method": "notifications/message", "params": {"level": "info", "data": data}})
    elif token := meta.get("progressToken"):
        figures = {"progressToken": token, "progress": 50 * place, "total": 100}
        yield _event({"method": "notifications/progress", "params": figures})


def _event(body: Json) -> bytes:
    return f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **body})}\n\n".encode()
