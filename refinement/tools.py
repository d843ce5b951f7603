"""The Knife's tools, defined once: from these types come the schemas every protocol is given, and the checks.

A model's arguments are data. What is wrong with them is told by field, without repeating them.
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
TOLD_AT_ONCE = 10  # things wrong with one call


def _number(value: object) -> object:
    """12, "12" and "#12" name the same memory; anything else is left for the type to refuse."""
    match = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else value


def _filled(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "is empty")
    return text


Filled = Annotated[str, AfterValidator(_filled)]
Number = Annotated[int, BeforeValidator(_number), Field(ge=1, lt=2**63, strict=True)]
Text = Annotated[Filled, Field(min_length=1, max_length=MAX_CONTENT)]
Dropping = Annotated[
    list[Annotated[str, Field(max_length=500)]],
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

    query: str = Field(max_length=2_000, description='words; "quoted phrases" in order; -word excludes; tag:NAME')
    since: str | None = Field(None, description="earliest origin date, ISO 8601")
    until: str | None = Field(None, description="latest origin date, ISO 8601")
    kind: Literal["core", "journal"] | None = None
    limit: int = Field(10, ge=1, le=50)


class ConsolidateMemories(Arguments):
    """Replace two or more core memories by one, in one step. The result keeps the earliest origin date. The answer
    lists under `left_out` the numbers, dates, names, addresses, identifiers and quotations that are now in no core
    memory, each with the id of its source: add what should stay with update_memory."""

    ids_to_merge: list[Number] = Field(min_length=2, max_length=1_000)
    new_content: Text
    dropping: Dropping = []
    category: str = Field("", max_length=20, description="only needed when the sources' categories differ")


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


def offered(mode: str) -> dict[str, type[Arguments]]:
    """The tools of a session in this mode."""
    return {name: TOOLS[name] for name in _DEDUPE_ONLY} if mode == Mode.DEDUPE_ONLY else TOOLS


def schemas(mode: str) -> tuple[Tool, ...]:
    """The tools as a model is told of them."""
    return tuple(_schema(name, arguments) for name, arguments in offered(mode).items())


def parse(mode: str, name: str, arguments: Mapping[str, Any] | None) -> Arguments:
    """The typed arguments of a call. Raises BadCall, naming each argument that is wrong and what would be right."""
    tools = offered(mode)
    if name not in tools:
        raise BadCall(f"There is no such tool. The tools are: {', '.join(tools)}.", "unknown_tool")
    if arguments is None:
        raise BadCall("The arguments are not a JSON object.", "bad_arguments")
    if not _storable(arguments):
        raise BadCall("The arguments hold a NUL character or half a surrogate pair, which is no text.", "bad_arguments")
    try:
        return tools[name].model_validate(arguments)
    except ValidationError as problem:
        told = _all_told(problem, tools[name])
    raise BadCall(f"{name}: {told}.", "bad_arguments")  # not in the handler: the error there holds the arguments


def _all_told(problem: ValidationError, arguments: type[Arguments]) -> str:
    """What is wrong, each thing once, and no more than can be read."""
    errors = problem.errors(include_input=False, include_url=False)
    told = list(dict.fromkeys(_told(error, arguments) for error in errors))
    more = [f"and {len(told) - TOLD_AT_ONCE:,} more"] if len(told) > TOLD_AT_ONCE else []
    return "; ".join(told[:TOLD_AT_ONCE] + more)


def _storable(value: object) -> bool:
    """Whether every text in the arguments, names included, can be stored and sent on."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str) and _UNSTORABLE.search(part):
            return False
        if isinstance(part, Mapping):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            waiting += part
    return True


def _told(error: Any, arguments: type[Arguments]) -> str:
    """One thing wrong. An unknown argument's name is the model's own words, so it is not repeated."""
    if error["type"] == "extra_forbidden":
        return f"an unknown argument (known: {', '.join(arguments.model_fields)})"
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg'][:200]}"


def _schema(name: str, arguments: type[Arguments]) -> Tool:
    schema = arguments.model_json_schema()
    description = " ".join(str(schema.pop("description", "")).split())
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return Tool(name, description, schema)
