"""`builtin/dedupe`: a program that replaces a language model, for first runs, servers without a network, and tests.

It merges near duplicates and keeps the fullest wording unchanged. It changes nothing else. It uses no network and no
tokens. The same conversation always gets the same reply.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from config.wording import several
from refinement.llm.base import Message, Reply, Request, ToolCall, json_value, tool_calls
from refinement.similarity import near_groups

CALLS_A_REPLY = 50  # the remaining edits follow in the next replies

_EDITS = {"consolidate_memories": "ids_to_merge", "delete_memory": "id"}
_FINISH = "complete_refinement"
_STOP_CODES = {"floor", "limit", "session_ended"}  # after such a refusal, no other edit can succeed
_INTRODUCTION = "This is builtin/dedupe, a deterministic program, not a language model."

_Call = tuple[str, dict[str, Any]]


class Dedupe:
    """A `Model` without state. The conversation shows which edits are done and which remain."""

    def complete(self, request: Request) -> Reply:
        """Reply with the remaining edits. After the last edit, reply with `complete_refinement`. If this tool is not
        offered, or if it was already called, reply with text only."""
        offered = {tool.name for tool in request.tools}
        past = _Past(request.messages)
        edits = [] if past.stop_code else list(_edits(_ledger(request.messages), offered, past.tried))
        if edits:
            return _reply(request, f"{_INTRODUCTION} Near duplicates found.", edits[:CALLS_A_REPLY])
        summary = past.summary()
        finish = [(_FINISH, {"summary": summary})] if _FINISH in offered and not past.has_finished else []
        return _reply(request, summary, finish)


def _reply(request: Request, text: str, calls: Sequence[_Call]) -> Reply:
    wanted = tool_calls(((None, name, arguments) for name, arguments in calls), request)
    return Reply(text, wanted, stop="tool_calls" if wanted else "end", calls=0)


class _Line(NamedTuple):
    """A memory of the ledger. Memories are merged only if they have the same `place` (project and category)."""

    id: int
    content: str
    place: tuple[str, str]
    constitutional: bool


def _ledger(messages: Sequence[Message]) -> list[_Line]:
    """The memories of the ledger in the order of their numbers, without constitutional memories. If a memory occurs
    twice, its last line counts."""
    lines = [line for message in messages if message.role == "user" for line in _lines(message.text)]
    kept = {line.id for line in lines if line.constitutional}
    last = {line.id: line for line in lines}
    return [line for number, line in sorted(last.items()) if number not in kept]


def _lines(text: str) -> Iterator[_Line]:
    # Only "\n" ends a line, and it is escaped in the text of a memory. splitlines() would also split at U+2028 and form
    # feeds, so part of a text could be read as a line of the ledger.
    for raw in text.split("\n"):
        match json_value(raw) if raw.startswith("[") else None:
            case [int(number), str(content), *rest] if number is not True and number is not False:
                details = rest[0] if rest and isinstance(rest[0], dict) else {}
                place = repr(details.get("project")), repr(details.get("category"))
                yield _Line(number, content, place, details.get("constitutional", False) is not False)


def _edits(ledger: Sequence[_Line], offered: set[str], tried: set[int]) -> Iterator[_Call]:
    """The edits: one merge for each group of near duplicates. If consolidate_memories is not offered, the edits delete
    all memories of a group except the fullest one."""
    for group, fullest in _groups(ledger):
        ids = [line.id for line in group]
        if "consolidate_memories" in offered:
            if tried.isdisjoint(ids):
                yield "consolidate_memories", {"ids_to_merge": ids, "new_content": fullest.content}
        elif "delete_memory" in offered:
            yield from (("delete_memory", {"id": i}) for i in ids if i != fullest.id and i not in tried)


def _groups(ledger: Sequence[_Line]) -> list[tuple[list[_Line], _Line]]:
    places: defaultdict[tuple[str, str], list[_Line]] = defaultdict(list)
    for line in ledger:
        places[line.place].append(line)
    found = [
        ([lines[i] for i in group.members], lines[group.fullest])
        for lines in places.values()
        for group in near_groups([line.content for line in lines])
    ]
    return sorted(found, key=lambda group: group[0][0].id)


class _Past:
    """The earlier calls of the conversation and their results. The memories in `tried` are not edited again."""

    def __init__(self, messages: Sequence[Message]) -> None:
        calls = [call for message in messages if message.role == "assistant" for call in message.tool_calls]
        results = {message.tool_call_id: message for message in messages if message.role == "tool"}
        edits = [(call, results.get(call.id)) for call in calls if call.name in _EDITS]
        done = [call for call, result in edits if result and not result.failed]
        codes = [_code(result.text) for result in results.values() if result.failed]
        self.tried = {number for call, _ in edits for number in _ids(call)}
        self.merges = [_ids(call) for call in done if call.name == "consolidate_memories"]
        self.deleted = len(done) - len(self.merges)
        self.refused = sum(1 for _, result in edits if result and result.failed)
        self.stop_code = next((code for code in codes if code in _STOP_CODES), "")
        self.has_finished = any(call.name == _FINISH for call in calls)

    def summary(self) -> str:
        """The model's summary of its edits, in numbers. It contains no content of memories."""
        parts = [_INTRODUCTION]
        if self.merges:
            merged = sum(map(len, self.merges))
            parts.append(f"It merged {merged} near duplicates into {several(len(self.merges), 'memory', 'memories')}.")
            parts.append("Of each group it kept the fullest wording.")
        if self.deleted:
            parts.append(f"It deleted {self.deleted} near duplicates and kept the fullest wording of each.")
        if not self.merges and not self.deleted:
            parts.append("It merged nothing.")
        if self.refused:
            parts.append(f"{self.refused} of its edits were refused and changed nothing.")
        if self.stop_code:
            parts.append(f"It stopped before the end because the session answered {self.stop_code!r}.")
        return " ".join([*parts, "It compares only the wording. It changed nothing else."])


def _ids(call: ToolCall) -> set[int]:
    value = (call.arguments or {}).get(_EDITS[call.name])
    return {number for number in (value if isinstance(value, list) else [value]) if type(number) is int}


def _code(text: str) -> str:
    """The error code in the result of a refused call, or "" if it has no code."""
    refusal = json_value(text)
    code = refusal.get("code") if isinstance(refusal, dict) else None
    return code if isinstance(code, str) else ""
