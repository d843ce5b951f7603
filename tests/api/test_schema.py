"""The OpenAPI schema: whole, as it is committed, and shown from the service's own files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.validation import validate_schema

from memory.api.base.examples import OPERATIONS
from tests.api.calling import Caller
from tests.api.test_keys import address, is_tenants

SNAPSHOT = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
# Objects of any form, and why: what the field's description says.
FREE_FORM = {"arguments", "detail", "memory_rules", "result", "storage", "tools"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return dict(SchemaGenerator().get_schema(request=None, public=True))


def test_it_is_a_schema(schema: dict[str, Any]) -> None:
    validate_schema(schema)


def test_it_is_the_one_that_is_committed(schema: dict[str, Any]) -> None:
    """WRITE_SCHEMA=1 writes it anew; a change of the API is then seen in the diff."""
    now = OpenApiYamlRenderer().render(schema, renderer_context={}).decode()
    if os.environ.get("WRITE_SCHEMA"):
        SNAPSHOT.write_text(now)
    assert SNAPSHOT.read_text() == now


def test_every_operation_tells_what_it_does_and_how_it_fails(schema: dict[str, Any]) -> None:
    for path, ways in schema["paths"].items():
        for method, operation in ways.items():
            where = f"{method} {path}"
            assert operation.get("description"), where
            assert 0 < len(operation["summary"]) <= 80, where
            assert operation["security"] == [{"key": []}], where
            assert {"401", "403", "422", "429", "503"} <= set(operation["responses"]), where
            assert any(code.startswith(("2", "3")) for code in operation["responses"]), where


def test_what_an_address_allows_is_what_the_schema_tells(schema: dict[str, Any], runtime: Caller, acme: Caller) -> None:
    """HEAD goes with GET, as HTTP has it."""
    for path, ways in schema["paths"].items():
        told = {method.upper() for method in ways}
        answer = (acme if is_tenants(path) else runtime).ask("OPTIONS", address(path))
        assert answer.status == 405, path
        allowed = set(answer.headers["Allow"].split(", "))
        assert allowed == told | ({"HEAD"} if "GET" in told else set()), path


def test_every_operation_has_a_name_of_its_own_and_examples(schema: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(schema)]
    assert len(names) == len(set(names))
    assert set(names) == set(OPERATIONS)
    for where, operation in operations(schema):
        told = {code: body for code, body in operation["responses"].items() if code.startswith("2") and code != "204"}
        bodies = [*told.values(), *([operation["requestBody"]] if "requestBody" in operation else [])]
        assert all(form.get("examples") for body in bodies for form in body["content"].values()), where
        assert all(body["description"] for body in operation["responses"].values()), where
        assert all("example" in part for part in operation.get("parameters", ()) if part["in"] == "path"), where


def test_the_examples_are_as_the_schema_says(schema: dict[str, Any]) -> None:
    for where, operation in operations(schema):
        for body in (operation.get("requestBody", {}), *operation["responses"].values()):
            for form in body.get("content", {}).values():
                for example in form.get("examples", {}).values():
                    fits(example["value"], form["schema"], schema, where)


def fits(value: Any, told: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """The value is what the schema tells: every name it needs, none it does not know, of the kinds it says."""
    if "$ref" in told:
        told = schema["components"]["schemas"][told["$ref"].rsplit("/", 1)[1]]
    if value is None:
        assert told.get("nullable"), where
        return
    for part in told.get("allOf", ()):
        fits(value, part, schema, where)
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    assert "type" not in told or isinstance(value, kinds[told["type"]]), where
    assert value in told.get("enum", [value]), where
    if "properties" in told:
        assert set(told.get("required", ())) <= set(value) <= set(told["properties"]), where
        for name, part in value.items():
            fits(part, told["properties"][name], schema, f"{where} {name}")
    if told.get("type") == "array":
        for part in value:
            fits(part, told["items"], schema, where)


def test_links_lead_to_operations_and_their_parameters(schema: dict[str, Any]) -> None:
    takes = {op["operationId"]: {part["name"] for part in op.get("parameters", ())} for _, op in operations(schema)}
    led_to = set()
    for where, operation in operations(schema):
        for body in operation["responses"].values():
            for link in body.get("links", {}).values():
                assert set(link["parameters"]) <= takes[link["operationId"]], where
                led_to.add(link["operationId"])
    by_id = {
        op["operationId"] for _, op in operations(schema) if any(p["in"] == "path" for p in op.get("parameters", ()))
    }
    assert by_id <= led_to  # whatever takes an id is reached from what makes one


def operations(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{method} {path}", told) for path, ways in schema["paths"].items() for method, told in ways.items()]


def test_no_object_is_of_any_form_but_those_that_say_why(schema: dict[str, Any]) -> None:
    found = dict(free_forms(schema["components"]["schemas"], ""))
    assert {name for name, why in found.items() if "free-form" not in why} == set()
    assert set(found) == FREE_FORM


def free_forms(part: Any, name: str) -> Iterator[tuple[str, str]]:
    """(name, what is said of it) of each place where anything may stand."""
    if isinstance(part, list):
        for each in part:
            yield from free_forms(each, name)
    if not isinstance(part, dict):
        return
    is_schema = "type" in part and isinstance(part["type"], str)
    if (is_schema and part["type"] == "object" and not part.get("properties")) or part in ({}, True):
        yield name, part.get("description", "")
        return
    for key, value in part.items():
        yield from free_forms(value, name if key in ("items", "schema", "allOf", "oneOf", "anyOf") else key)


def test_an_object_of_any_form_would_be_seen() -> None:
    for free in (
        {"type": "object"},
        {"type": "object", "additionalProperties": {}},
        {"type": "array", "items": {}},
        {},
    ):
        assert list(free_forms({"X": {"type": "object", "properties": {"a": free}}}, "")) == [("a", "")]


def test_the_page_stands_on_the_services_own_files(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    page = Client().get("/api/v1/docs/")
    assert page.status_code == 200
    assert b"//cdn" not in page.content
    assert b"https://" not in page.content
    assert Client().get("/api/v1/schema/").status_code == 200
