"""The Knife's tools. The types below have two uses: they define the schemas that models get, and they check the
arguments of calls.

The arguments come from a model and are not trusted. An error names the wrong field, but does not repeat the field's
value.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_snake
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from memory.policy.validation import MAX_CONTENT
from refinement.errors import BadCall
from refinement.llm.base import Tool, json_value
from refinement.models import Mode

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_NUMBER = re.compile(r"#?(\d{1,18})(?:\.0+)?\Z")
PREFIX = "functions."  # some models write it before the name of a tool
MAX_ERRORS = 10  # in one message
MAX_NAMES = 50  # of arguments, with unknown ones
MAX_LIST = 25_000  # characters of a list as text
MAX_EDITS = 100  # in one call of `apply`
EDITING = [  # the tools that `apply` accepts
    *("consolidate_memories", "update_memory", "delete_memory", "demote_memory", "protect_memory", "promote_memory")
]
READING = ["search_memories"]  # a repeated call is made again


def _number(value: object) -> object:
    """Turn 12.0 and the texts "12", "#12" and "12.0" into the number 12. Other values do not change. The argument's
    type then validates the result."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    match = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else value


def _list(value: object) -> object:
    """Turn the text "[1, 2]" into a list. Other values do not change."""
    if isinstance(value, str) and len(value) <= MAX_LIST and value.lstrip().startswith("["):
        return json_value(value)
    return value


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise PydanticCustomError("unstorable", "contains a NUL character or half a surrogate pair")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "is empty")
    return text


Storable = Annotated[str, AfterValidator(_storable)]
Filled = Annotated[Storable, AfterValidator(_filled)]
Number = Annotated[
    int, WithJsonSchema({"type": "integer", "minimum": 1}), BeforeValidator(_number), Field(ge=1, lt=2**63, strict=True)
]
# The first wrong item ends a check: a call can have 200,000 of them, and the agent is locked.
Numbers = Annotated[list[Number], Field(fail_fast=True, min_length=2, max_length=1_000), BeforeValidator(_list)]
Text = Annotated[Filled, Field(min_length=1, max_length=MAX_CONTENT)]
Ignored = SkipJsonSchema[Any]  # an argument of earlier versions


class _Object(BaseModel):
    """An object without unknown fields."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_harmless_extras(cls, arguments: Any) -> Any:
        """Leave out a `reason` that the tool does not have, and optional arguments that are null."""
        if not isinstance(arguments, Mapping):
            return arguments
        if len(arguments) > MAX_NAMES:
            raise PydanticCustomError("too_many", "too many arguments")
        fields = cls.model_fields
        optional = {name for name, field in fields.items() if not field.is_required()}
        return {
            name: value
            for name, value in arguments.items()
            if not (value is None and name in optional) and (name in fields or name != "reason")
        }

    def __repr__(self) -> str:
        """The name of the type, without the arguments, because they are content."""
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class Arguments(_Object):
    """The arguments of a tool. Unknown arguments are refused. The tool of `SearchMemories` is `search_memories`."""


class SearchMemories(Arguments):
    """Find memories by words, to see what belongs together. Changes nothing."""

    query: Storable = Field(max_length=2_000, description='words; "quoted phrases" in order; -word excludes; tag:NAME')
    since: Storable = Field("", description="earliest origin date, ISO 8601")
    until: Storable = Field("", description="latest origin date, ISO 8601")
    kind: Literal["core", "journal", "beneath"] | None = None
    limit: Annotated[int, Field(ge=1, le=50), BeforeValidator(_number)] = 10


class ConsolidateMemories(Arguments):
    """Replace two or more core memories with one new core memory. Its sources go beneath: they leave the context and
    the budget, and search still finds them. If numbers, dates, names, addresses, identifiers or quotations are no
    longer in any core memory, the result lists them in `left_out`, each with the id of its source. If the text still
    has dates such as "last Tuesday", the result lists them in `relative_dates`. Use update_memory to correct the
    text."""

    ids_to_merge: Numbers
    new_content: Text = Field(description="the facts of all its sources as one text, not a note about the merge")
    dropping: Ignored = None
    category: Storable = Field("", max_length=20, description="required only if the sources have different categories")


class UpdateMemory(Arguments):
    """Write a new text for one core memory: shorter, or with a detail added. The old text goes beneath. The result
    lists `left_out` and `relative_dates`, as for consolidate_memories."""

    id: Number
    content: Text = Field(description="the facts, not a note about the change")
    dropping: Ignored = None


class DeleteMemory(Arguments):
    """Discard one obsolete memory of core or beneath. Search no longer finds it. A rollback can restore it."""

    id: Number


class DemoteMemory(Arguments):
    """Move one core memory beneath: out of the context and the budget. Search still finds it."""

    id: Number
    reason: Storable = Field("", max_length=500, description="stored in the audit trail, sealed")


class ProtectMemory(Arguments):
    """Make a core memory constitutional. You can never delete, merge or rewrite it again."""

    id: Number


class PromoteMemory(Arguments):
    """Move a memory from the journal or from beneath to core, because the agent needs it in its context."""

    id: Number


class Edit(_Object):
    """One edit of `apply`. Its tool and its arguments are checked when it is made."""

    tool: str
    arguments: Any


_FIELDS = {"tool": {"enum": EDITING}, "arguments": {"type": "object"}}
_EDIT = WithJsonSchema({"type": "object", "properties": _FIELDS, "required": [*_FIELDS]})


class Apply(Arguments):
    """Make several edits in one call, in order. Each edit is a call of another tool, and is checked, made and answered
    by itself. So an edit that is refused does not stop the others. Together they count as at most one failed call."""

    edits: list[Annotated[Edit, _EDIT]] = Field(
        fail_fast=True,
        min_length=1,
        max_length=MAX_EDITS,
        description='for example [{"tool": "demote_memory", "arguments": {"id": 12}}]',
    )


class DeclineRefinement(Arguments):
    """End the session before any edit, because nothing should change now."""

    reason: Filled = Field(min_length=1, max_length=2_000)


class CompleteRefinement(Arguments):
    """End the session. Say in one or two sentences what you did and why. The service adds the figures."""

    summary: Filled = Field(min_length=1, max_length=2_000)


TOOLS: dict[str, type[Arguments]] = {to_snake(each.__name__): each for each in Arguments.__subclasses__()}
_DEDUPE_ONLY = ("search_memories", "delete_memory", "protect_memory", "complete_refinement")
_OF_CORE = ("demote_memory", "protect_memory", "promote_memory")
OFFERED: dict[str, dict[str, type[Arguments]]] = {  # by the session's mode
    Mode.FULL: TOOLS,
    Mode.DEDUPE_ONLY: {name: TOOLS[name] for name in _DEDUPE_ONLY},
    Mode.STORE: {name: TOOLS[name] for name in TOOLS if name not in _OF_CORE},
}


def schemas(mode: str) -> tuple[Tool, ...]:
    """The tools that a session in this mode offers to the model."""
    return tuple(_schema(name, arguments) for name, arguments in OFFERED[mode].items())


def parse(mode: str, name: str, arguments: Mapping[str, Any] | None, *, is_edit: bool = False) -> Arguments:
    """The checked arguments of a call, or of an edit of `apply`. Raises BadCall. The message of the error names the
    wrong arguments, and says what is expected."""
    tools = OFFERED[mode]
    if is_edit and name not in EDITING:
        raise BadCall(f"The `tool` of an edit must be one of: {', '.join(EDITING)}.", "unknown_tool")
    if name not in tools:
        raise BadCall(f"Unknown tool. The tools are: {', '.join(tools)}.", "unknown_tool")
    if arguments is None:
        raise BadCall("The arguments must be a JSON object.", "bad_arguments")
    try:
        return tools[name].model_validate(arguments)
    except ValidationError as problem:
        wrong = _describe(problem, tools[name])
    raise BadCall(f"{name}: {wrong}.", "bad_arguments")  # outside the handler, whose error contains the arguments


def _describe(problem: ValidationError, arguments: type[Arguments]) -> str:
    """The messages of the errors, at most `MAX_ERRORS`, without repetitions. The name of an unknown argument is left
    out, because the model wrote this name."""
    known = f"an unknown argument (known: {', '.join(arguments.model_fields)})"
    errors = (
        known if error["type"] == "extra_forbidden" else f"{'.'.join(map(str, error['loc']))}: {error['msg'][:200]}"
        for error in problem.errors(include_input=False, include_url=False)
    )
    found = list(dict.fromkeys(errors))
    more = [f"and {len(found) - MAX_ERRORS:,} more"] if len(found) > MAX_ERRORS else []
    return "; ".join(found[:MAX_ERRORS] + more)


def _schema(name: str, arguments: type[Arguments]) -> Tool:
    schema = arguments.model_json_schema()
    description = " ".join(str(schema.pop("description", "")).split())
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return Tool(name, description, schema)
