"""The OpenAPI schema: every operation with its examples, its links and the errors that it may return."""

import re
from threading import Lock
from typing import Any, ClassVar, Literal

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from memory.api.base.bodies import Body
from memory.api.base.examples import TAGS, examples, links
from memory.api.base.views import AgentView, TenantView


class ErrorOut(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="stable; see docs/reference/api.md")
    detail = serializers.CharField(help_text="for people; repeats no part of the request")
    attr = serializers.CharField(allow_null=True, help_text="the field with the error")


class ErrorsOut(serializers.Serializer[Any]):
    """The body of every error."""

    type = serializers.ChoiceField(["validation_error", "client_error", "server_error"])
    errors = ErrorOut(many=True)  # type: ignore[assignment]  # it is a field, which DRF removes from the class
    prompt = serializers.CharField(required=False, help_text="question to ask a person, if memory or a category is off")


_WRITES = ("POST", "PATCH", "PUT", "DELETE")
_SUCCESS = {"200": "success", "201": "created", "202": "accepted", "204": "success, without a body"}
# Parameters in paths: description and example.
_PARTS: dict[str, tuple[str, Any]] = {
    "number": ("number of the memory, session, request, proposal or import within the agent", 1),
    "seq": ("the entry's number", 5),
    "slug": ("the agent's name within the tenant", "ada"),
    "prefix": ("the part of the key between its two underscores", "k3v9x1m7q2aa"),
    "name": ("name of the recorded session", "20260201-093000"),
    "tool": ("the tool's name, as the model called it", "delete_memory"),
}


def add_tags(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the groups of operations, and sort the operations by group. drf-spectacular calls this hook."""
    parts = [part for tag in TAGS for part in tag["paths"]]
    paths = sorted(result["paths"].items(), key=lambda item: parts.index(_first_part(item[0])))
    tags = [{"name": tag["name"], "description": tag["description"]} for tag in TAGS]
    return result | {"paths": dict(paths), "tags": tags}


def _first_part(path: str) -> str:
    return path.removeprefix("/api/v1/").split("/")[0]


_making = Lock()


class OnceGenerator(SchemaGenerator):
    """Makes the schema once in each process. It takes half a second, and two threads cannot do it at the same time."""

    made: ClassVar[dict[str, Any]] = {}

    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        with _making:
            if not self.made:
                self.made.update(super().get_schema(request, public))  # type: ignore[no-untyped-call]
        return self.made


class Schema(AutoSchema):
    """Adds to each operation its group, a summary, examples, links and the errors that it can return."""

    def get_operation(self, *args: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args)
        for parameter in (operation or {}).get("parameters", ()):
            if parameter["in"] == "path":
                parameter["description"], parameter["example"] = _PARTS[parameter["name"]]
        return operation

    def get_tags(self) -> list[str]:
        return [tag["name"] for tag in TAGS if _first_part(self.path) in tag["paths"]]

    def get_summary(self) -> str:
        """The first sentence of the description."""
        return re.split(r"\.(?:\s|$)", self.get_description())[0].replace("\n", " ")

    def get_examples(self) -> list[OpenApiExample]:
        return list(examples(self.get_operation_id()))

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> dict[str, Any]:
        schema: dict[str, Any] = super()._map_serializer(serializer, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        return schema | {"additionalProperties": False} if isinstance(serializer, Body) else schema

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        for code, body in bodies.items():
            body["description"] = body.get("description") or _SUCCESS[code]
            if onward := links(self.get_operation_id(), code):
                body["links"] = onward
        for code, why in self._errors():
            response: dict[str, Any] = self._get_response_for_code(ErrorsOut, code)  # type: ignore[no-untyped-call]
            bodies[code] = response | {"description": why}
        return bodies

    def _errors(self) -> list[tuple[str, str]]:
        if not isinstance(self.view, AgentView | TenantView):
            return []
        found = [("401", "no valid key"), ("403", "the wrong kind of key"), ("429", "too many requests")]
        if "{" in self.path:
            found.append(("404", "not found, or belongs to another agent"))
        if isinstance(self.view, AgentView) or self.method in _WRITES:
            found.append(("409", "a conflict with the current state; the code says which conflict"))
        if self.method in _WRITES:
            found += [("400", "malformed body"), ("413", "body too large"), ("415", "unsupported content type")]
        if self.method in ("PATCH", "DELETE") and isinstance(self.view, AgentView):
            found.append(("412", "the object has changed since you read it (`If-Match`)"))
        return [*found, ("422", "invalid value"), ("503", "temporarily unavailable")]
