"""Our own JSON Lines as parts, by the importer's rules (docs/migration-sources.md, "Our own export"): one bad line, and
nothing of the file is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any

from memory.errors import Invalid
from memory.policy.categories import PROJECT, scope_of
from memory.policy.validation import Draft
from memory.transfer.formats import gathering, jsonl
from memory.transfer.formats.found import HERE, Found, LeftOut, Part, without_key
from memory.transfer.formats.gathering import Gathered
from memory.transfer.formats.text import EMPTY


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    why = _what_is_wrong(file)
    if why:
        yield LeftOut(path, why)
        return
    for number, value in _lines(file):
        part = _part(value, number, path)
        yield part if gathering.id_of(value.get("id")) else without_key(part, f"{path}#")


def _what_is_wrong(file: IO[bytes]) -> str:
    is_any = False
    try:
        for _ in _lines(file):
            is_any = True
    except jsonl.BadLine as bad:
        return f"{bad.field} {bad.problem.removesuffix('. Nothing was imported.')}; nothing of the file is taken"
    return "" if is_any else EMPTY


def _lines(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's number and what it holds, which was looked at. Raises BadLine."""
    file.seek(0)
    for number, line in enumerate(jsonl.lines_of("the file", file), 1):
        if not line.strip():
            continue
        try:
            value = jsonl.object_of(line)
            jsonl.draft_of(value, jsonl.Imported())
        except Invalid as problem:
            raise jsonl.BadLine(number, problem.field, problem.problem) from None
        yield number, value


def _part(value: Mapping[str, Any], number: int, path: str) -> Part:
    done = jsonl.Imported()
    draft = jsonl.draft_of(dict(value), done)
    key = gathering.key_of(path, value, f"line-{number}")
    if draft is None:
        return LeftOut(key, "was discarded there")
    told = Gathered()
    if done.constitutional:
        told.tell(gathering.WAS_CONSTITUTIONAL)
    for name in sorted(done.names):
        told.not_kept(name)
    return _found(key, draft, value.get("project"), told)


def _found(key: str, draft: Draft, project: object, told: Gathered) -> Found:
    is_here = not project and scope_of(draft.category) == PROJECT
    return Found(
        key,
        draft.content,
        draft.category,
        HERE if is_here else draft.project,
        tuple(draft.tags),
        draft.origin,
        draft.kind,
        transformed=told.transformed,
    )
