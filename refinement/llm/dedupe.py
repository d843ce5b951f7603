"""`builtin/dedupe`: a program in a language model's place, for first runs, air-gapped use and tests.

It merges near duplicates, keeping the fullest wording word for word, and leaves everything else as it is. It needs
no network, costs no tokens, and the same conversation always gets the same reply.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from refinement.llm.base import Message, Reply, Request, ToolCall, json_value, tool_calls
from refinement.similarity import near_groups

CALLS_A_REPLY = 50
"""Edits asked for in one reply; the rest follow in the next ones."""

_EDITS = {"consolidate_memories": "ids_to_merge", "delete_memory": "id"}
_FINISH = "complete_refinement"
_STOPS = ("floor", "limit", "breaker", "budget", "closed", "ended")
_PLAIN_CODE = re.compile(r"[a-z][a-z_]{1,39}")  # it is repeated in the summary: a code, never a text
_SAME_PLACE = ("scope", "project", "category")
_WHO = "This is builtin/dedupe, a deterministic program, not a language model."


class Dedupe:
    """A `Model` that keeps nothing between calls: what is done and what remains is read from the conversation."""

    def complete(self, request: Request) -> Reply:
        """Edits that are still to be made, else `complete_refinement`, else (no tools, or refused) text alone."""
        offered = {tool.name for tool in request.tools}
        past = _Past.of(request.messages)
        edits = [] if past.stopped_by else list(_edits(_ledger(request.messages), offered, past.touched))
        if edits:
            return _reply(request, f"{_WHO} Near duplicates found.", edits[:CALLS_A_REPLY])
        summary = past.summary()
        if _FINISH in offered and not past.finish_asked:
            return _reply(request, summary, [(_FINISH, {"summary": summary})])
        return _reply(request, summary, [])


_Call = tuple[str, dict[str, Any]]


def _reply(request: Request, text: str, calls: Sequence[_Call]) -> Reply:
    asked = tool_calls(((None, name, arguments) for name, arguments in calls), request)
    return Reply(text, asked, stop="tool_calls" if asked else "end", calls=0)


@dataclass(frozen=True, slots=True)
class _Line:
    """A memory of the ledger. `place`: scope, project and category, which a merge must not cross."""

    id: int
    content: str
    place: tuple[str, ...]
    constitutional: bool


def _ledger(messages: Sequence[Message]) -> list[_Line]:
    """The memories shown, by number. One that is shown twice counts as last shown, but stays constitutional."""
    shown: dict[int, _Line] = {}
    kept = set()
    for message in messages:
        if message.role in ("system", "user"):
            for line in _lines(message.text):
                shown[line.id] = line
                kept |= {line.id} if line.constitutional else set()
    return [line for number, line in sorted(shown.items()) if number not in kept]


def _lines(text: str) -> Iterator[_Line]:
    # Only "\n" ends a line: a memory's text has it escaped, but may well hold U+2028 or form feeds, at which
    # splitlines() would cut, and what stands behind them would be read as a line of the ledger.
    for raw in text.split("\n"):
        value = json_value(raw) if raw.lstrip().startswith("{") else None
        if isinstance(value, dict) and _is_memory(value):
            yield _Line(
                value["id"],
                value["content"],
                tuple(repr(value.get(key)) for key in _SAME_PLACE),
                value["constitutional"] is not False,
            )


def _is_memory(value: dict[str, Any]) -> bool:
    return (
        type(value.get("id")) is int
        and isinstance(value.get("content"), str)
        and value.get("kind", "core") == "core"
        and "tokens" in value
        and "constitutional" in value
    )


def _edits(ledger: Sequence[_Line], offered: set[str], touched: set[int]) -> Iterator[_Call]:
    """One merge for each group of near duplicates; where only deleting is offered, its members but the fullest."""
    for group, fullest in _groups(ledger):
        # What was asked for before is done, or was refused for a reason that stands.
        ids = [line.id for line in group]
        if "consolidate_memories" in offered:
            if touched.isdisjoint(ids):
                yield "consolidate_memories", {"ids_to_merge": ids, "new_content": fullest.content}
        elif "delete_memory" in offered:
            yield from (("delete_memory", {"id": i}) for i in ids if i != fullest.id and i not in touched)


def _groups(ledger: Sequence[_Line]) -> list[tuple[list[_Line], _Line]]:
    places: defaultdict[tuple[str, ...], list[_Line]] = defaultdict(list)
    for line in ledger:
        places[line.place].append(line)
    found = [
        ([lines[i] for i in group.members], lines[group.fullest])
        for lines in places.values()
        for group in near_groups([line.content for line in lines])
    ]
    return sorted(found, key=lambda group: group[0][0].id)


@dataclass(frozen=True, slots=True)
class _Past:
    """What was asked for earlier in the conversation, and what came of it."""

    touched: set[int]
    merges: int
    merged: int
    deleted: int
    refused: int
    stopped_by: str
    finish_asked: bool

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _Past:
        asked = [call for message in messages if message.role == "assistant" for call in message.tool_calls]
        answers = {message.tool_call_id: message for message in messages if message.role == "tool"}
        edits = [(call, answers.get(call.id)) for call in asked if call.name in _EDITS]
        done = [call for call, answer in edits if answer and not answer.failed]
        merges = [call for call in done if call.name == "consolidate_memories"]
        return cls(
            touched={number for call, _ in edits for number in _ids(call)},
            merges=len(merges),
            merged=sum(len(_ids(call)) for call in merges),
            deleted=len(done) - len(merges),
            refused=sum(1 for _, answer in edits if answer and answer.failed),
            stopped_by=next((code for answer in answers.values() if (code := _stop_code(answer))), ""),
            finish_asked=any(call.name == _FINISH for call in asked),
        )

    def summary(self) -> str:
        """What was done, in plain words and without a word of any memory."""
        parts = [_WHO]
        if self.merges:
            parts.append(f"It merged {self.merged} near duplicates into {self.merges} memories.")
            parts.append("Of each group it kept the fullest wording.")
        if self.deleted:
            parts.append(f"It deleted {self.deleted} near duplicates whose fullest wording stays.")
        if not self.merges and not self.deleted:
            parts.append("It merged nothing.")
        if self.refused:
            parts.append(f"{self.refused} of its edits were refused and changed nothing.")
        if self.stopped_by:
            parts.append(f"It stopped before the end because the session answered {self.stopped_by!r}.")
        return " ".join([*parts, "It judges wording only; everything else is as it was."])


def _ids(call: ToolCall) -> set[int]:
    value = (call.arguments or {}).get(_EDITS[call.name])
    return {number for number in (value if isinstance(value, list) else [value]) if type(number) is int}


def _stop_code(answer: Message) -> str:
    """The code of a refusal after which no further edit can succeed, or nothing."""
    if not answer.failed:
        return ""
    for raw in (answer.text, *answer.text.split("\n")):
        code = _code(json_value(raw))
        if _PLAIN_CODE.fullmatch(code) and any(stop in code for stop in _STOPS):
            return code
    return ""


def _code(value: Any) -> str:
    if isinstance(value, dict):
        found = value.get("code")
        return found if isinstance(found, str) else _code(value.get("error"))
    return ""
