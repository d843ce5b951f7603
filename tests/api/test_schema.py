"""The OpenAPI schema: complete, equal to the committed file, and with a page that loads nothing from elsewhere."""

import os
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
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return dict(SchemaGenerator().get_schema(request=None, public=True))


def operations(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{method} {path}", each) for path, item in schema["paths"].items() for method, each in item.items()]


def test_the_schema_is_valid_and_committed(schema: dict[str, Any]) -> None:
    """WRITE_SCHEMA=1 writes the file, so that the diff shows a change of the API."""
    validate_schema(schema)
    now = OpenApiYamlRenderer().render(schema, renderer_context={}).decode()
    if os.environ.get("WRITE_SCHEMA"):
        SNAPSHOT.write_text(now)
    assert SNAPSHOT.read_text() == now


def test_every_operation_is_documented(schema: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(schema)]
    assert len(names) == len(set(names))
    assert set(names) == set(OPERATIONS)
    for where, operation in operations(schema):
        responses = operation["responses"]
        assert operation.get("description"), where
        assert 0 < len(operation["summary"]) <= 80, where
        scheme = "keyOrCode" if where == "post /api/v1/agent/keys" else "key"
        assert operation["security"] == [{scheme: []}], where
        assert {"401", "403", "422", "429", "503"} <= set(responses), where
        assert any(code.startswith(("2", "3")) for code in responses), where
        bodies = [body for code, body in responses.items() if code.startswith("2") and code != "204"]
        bodies += [operation["requestBody"]] if "requestBody" in operation else []
        assert all(form.get("examples") for body in bodies for form in body["content"].values()), where
        assert all(body["description"] for body in responses.values()), where
        assert all("example" in part for part in operation.get("parameters", ()) if part["in"] == "path"), where


def test_the_allowed_methods_are_those_of_the_schema(schema: dict[str, Any], runtime: Caller, acme: Caller) -> None:
    for path, item in schema["paths"].items():
        methods = {method.upper() for method in item}
        answer = (acme if is_tenants(path) else runtime).ask("OPTIONS", address(path))
        assert answer.status == 405, path
        assert set(answer.headers["Allow"].split(", ")) == methods | ({"HEAD"} if "GET" in methods else set()), path


def test_the_examples_match_the_schema(schema: dict[str, Any]) -> None:
    for where, operation in operations(schema):
        for body in (operation.get("requestBody", {}), *operation["responses"].values()):
            for form in body.get("content", {}).values():
                for example in form.get("examples", {}).values():
                    check_value(example["value"], form["schema"], schema, where)


def check_value(value: Any, described: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """The value has every required key, no unknown key, and the types of the schema."""
    if "$ref" in described:
        described = schema["components"]["schemas"][described["$ref"].rsplit("/", 1)[1]]
    if value is None:
        assert described.get("nullable"), where
        return
    for part in described.get("allOf", ()):
        check_value(value, part, schema, where)
    assert "type" not in described or isinstance(value, TYPES[described["type"]]), where
    assert value in described.get("enum", [value]), where
    if "properties" in described:
        assert set(described.get("required", ())) <= set(value) <= set(described["properties"]), where
        for name, part in value.items():
            check_value(part, described["properties"][name], schema, f"{where} {name}")
    for part in value if described.get("type") == "array" else ():
        check_value(part, described["items"], schema, where)


def test_links_lead_to_every_operation_with_an_id(schema: dict[str, Any]) -> None:
    by_id = {each["operationId"]: each.get("parameters", ()) for _, each in operations(schema)}
    linked = set()
    for where, operation in operations(schema):
        for body in operation["responses"].values():
            for link in body.get("links", {}).values():
                assert set(link["parameters"]) <= {part["name"] for part in by_id[link["operationId"]]}, where
                linked.add(link["operationId"])
    assert {name for name, parts in by_id.items() if any(part["in"] == "path" for part in parts)} <= linked


def test_the_page_of_the_schema_loads_only_the_services_files(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    page = Client().get("/api/v1/docs/")
    assert page.status_code == Client().get("/api/v1/schema/").status_code == 200
    assert b"//cdn" not in page.content
    assert b"https://" not in page.content
