"""Reads operations.yaml, which has the groups, examples and links of the schema. The tests use these examples, too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from drf_spectacular.utils import OpenApiExample

from memory.policy.settings_document import DEFAULTS

_JSON = "application/json"

_FILE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("operations.yaml").read_text("utf-8"))
TAGS: list[dict[str, Any]] = _FILE["tags"]
OPERATIONS: dict[str, dict[str, Any]] = _FILE["operations"]
OPERATIONS["rules_read"]["responses"] = {200: DEFAULTS}


def examples(operation_id: str) -> Iterator[OpenApiExample]:
    operation = OPERATIONS.get(operation_id, {})  # a test of the schema fails if an operation is missing
    if "request" in operation:
        media_type = operation.get("request_type", _JSON)
        yield OpenApiExample("request", operation["request"], request_only=True, media_type=media_type)
    responses: dict[str, Any] = {"response_only": True, "media_type": operation.get("response_type", _JSON)}
    for status, body in operation.get("responses", {}).items():
        yield OpenApiExample(f"answer {status}", body, status_codes=[str(status)], **responses)
    for kind, body in operation.get("accepts", {}).items():
        yield OpenApiExample(f"request {kind}", body, request_only=True, media_type=kind)
    for kind, body in operation.get("formats", {}).items():
        yield OpenApiExample(kind, body, status_codes=["200"], **responses | {"media_type": kind})


def links(operation_id: str, status: str) -> dict[str, Any]:
    """A dict with the links of a response. The keys are the names of the links."""
    operation = OPERATIONS.get(operation_id, {})
    found = {
        f"{following}_by_{parameter}": {
            "operationId": following,
            "parameters": {parameter: f"$response.body#{link['at']}"},
        }
        for parameter, link in operation.get("links", {}).get(int(status), {}).items()
        for following in link["operations"]
    }
    for following, parameters in operation.get("more_links", {}).get(int(status), {}).items():
        found[following] = {"operationId": following, "parameters": parameters}
    return found
