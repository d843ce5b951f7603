"""The Knife's tools, defined once: these types give the schemas for every protocol, and they check the arguments.

A model's arguments are data. An error names the field that is wrong, and does not repeat its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from memory.policy.validation import MAX_CONTENT
from refinement.errors import BadCall
from refinement.llm.base import Tool
from refinement.models import Mode

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_NUMBER = re.compile(r"#?(\d{1,18})\Z")
MAX_ERRORS = 10  # in one message


def _number(value: object) -> object:
    """12, "12" and "#12" name the same memory; anything else is left for the type to refuse."""
    match = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else value


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise PydanticCustomError("unstorable", "holds a NUL character or half a surrogate pair, which is no text")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "is empty")
    return text


Storable = Annotated[str, AfterValidator(_storable)]
Filled = Annotated[Storable, AfterValidator(_filled)]
Number = Annotated[int, BeforeValidator(_number), Field(ge=1, lt=2**63, strict=True)]
Text = Annotated[Filled, Field(min_length=1, max_length=MAX_CONTENT)]
Dropping = Annotated[
    list[Annotated[Storable, Field(max_length=500)]],
    Field(max_length=100, description="what is left out on purpose; kept in the audit trail"),
]


class Arguments(BaseModel):
    """What a tool is called with. Unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    def __repr__(self) -> str:
        """Without what the model said."""
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class SearchMemories(Arguments):
    """Find memories by words, to see what belongs together. Changes nothing."""

    query: Storable = Field(max_length=2_000, description='words; "quoted phrases" in order; -word excludes; tag:NAME')
    since: Storable | None = Field(None, description="earliest origin date, ISO 8601")
    until: Storable | None = Field(None, description="latest origin date, ISO 8601")
    kind: Literal["core", "journal"] | None = None
    limit: int = Field(10, ge=1, le=50)


class ConsolidateMemories(Arguments):
    """Replace two or more core memories by one, in one step. The result keeps the earliest origin date. The answer
    lists under `left_out` the numbers, dates, names, addresses, identifiers and quotations that are now in no core
    memory, each with the id of its source: add what should stay with update_memory."""

    ids_to_merge: list[Number] = Field(min_length=2, max_length=1_000)
    new_content: Text
    dropping: Dropping = []
    category: Storable = Field("", max_length=20, description="only needed when the sources' categories differ")


class UpdateMemory(Arguments):
    """Tighten the wording of one core memory. The answer has `left_out`, as that of consolidate_memories."""

    id: Number
    content: Text
    dropping: Dropping = []


class DeleteMemory(Arguments):
    """Discard one core memory that is obsolete. It can be restored by a rollback."""

    id: Number


class ProtectMemory(Arguments):
    """Make a core memory constitutional: never again deleted, merged or rewritten by you."""

    id: Number


class PromoteMemory(Arguments):
    """Turn a journal memory into a core one, because it deserves to be kept in mind."""

    id: Number


class DeclineRefinement(Arguments):
    """End the session before any edit, because nothing should be changed now."""

    reason: Filled = Field(min_length=1, max_length=2_000)


class CompleteRefinement(Arguments):
    """End the session. The figures are counted for you; say in a sentence or two what you did and why."""

    summary: Filled = Field(min_length=1, max_length=2_000)


TOOLS: dict[str, type[Arguments]] = {
    "search_memories": SearchMemories,
    "consolidate_memories": ConsolidateMemories,
    "update_memory": UpdateMemory,
    "delete_memory": DeleteMemory,
    "protect_memory": ProtectMemory,
    "promote_memory": PromoteMemory,
    "decline_refinement": DeclineRefinement,
    "complete_refinement": CompleteRefinement,
}
_DEDUPE_ONLY = ("search_memories", "delete_memory", "protect_memory", "complete_refinement")
OFFERED: dict[str, dict[str, type[Arguments]]] = {  # by the session's mode
    Mode.FULL: TOOLS,
    Mode.DEDUPE_ONLY: {name: TOOLS[name] for name in _DEDUPE_ONLY},
}


def schemas(mode: str) -> tuple[Tool, ...]:
    """The tools as a model needs them."""
    return tuple(_schema(name, arguments) for name, arguments in OFFERED[mode].items())


def parse(mode: str, name: str, arguments: Mapping[str, Any] | None) -> Arguments:
    """The typed arguments of a call. Raises BadCall, naming each argument that is wrong and what would be right."""
    tools = OFFERED[mode]
    if name not in tools:
        raise BadCall(f"There is no such tool. The tools are: {', '.join(tools)}.", "unknown_tool")
    if arguments is None:
        raise BadCall("The arguments are not a JSON object.", "bad_arguments")
    try:
        return tools[name].model_validate(arguments)
    except ValidationError as problem:
        wrong = _describe(problem, tools[name])
    raise BadCall(f"{name}: {wrong}.", "bad_arguments")  # not in the handler: the error there holds the arguments


def _describe(problem: ValidationError, arguments: type[Arguments]) -> str:
    """The errors, each once, and at most `MAX_ERRORS`. The name of an unknown argument is the model's text, so it is
    not repeated."""
    found: dict[str, None] = {}
    for error in problem.errors(include_input=False, include_url=False):
        if error["type"] == "extra_forbidden":
            found[f"an unknown argument (known: {', '.join(arguments.model_fields)})"] = None
        else:
            found[f"{'.'.join(map(str, error['loc']))}: {error['msg'][:200]}"] = None
    more = [f"and {len(found) - MAX_ERRORS:,} more"] if len(found) > MAX_ERRORS else []
    return "; ".join([*found][:MAX_ERRORS] + more)


def _schema(name: str, arguments: type[Arguments]) -> Tool:
    schema = arguments.model_json_schema()
    description = " ".join(str(schema.pop("description", "")).split())
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return Tool(name, description, schema)
