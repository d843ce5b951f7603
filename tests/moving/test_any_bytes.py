"""Files of any bytes, in the places of every system: each becomes memories or a reason. There is no other error."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.policy.validation import Draft
from memory.transfer.formats.parts import HERE, Found
from memory.transfer.reading import detect
from memory.transfer.systems import SYSTEMS
from tests.moving.looking import put
from tests.moving.test_systems import TREES

PLACES = [
    *(".cursor/rules/a.mdc", ".github/instructions/a.instructions.md", "CLAUDE.md", ".claude/memory/a.md"),
    *(".windsurf/rules/a.md", ".clinerules/a.md", "memory-rules/settings.json", "memory/common/technical/a.md"),
    *("memory/private/keys/a.md", "memory/projects/p/topics/a.md", "memories/a.xml", "logs/a.md"),
    *("exports/a.json", "exports/b.jsonl", "agents/a.af", "notes/a.json", "notes/a.md"),
]
BITS = [
    *(b"---\n", b"globs: a\n", b"- b\n", b"paths: []\n", b"# H\n", b"```\n", b"@a/b.md ", b"x" * 6_000, b"\r\n", b"\0"),
    *(b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b"]", b",", b":", b'"memory"', b'"results"'),
    *(b"1e999", b'"content"', b'"blocks"', b'"agents"', b'"data"', b'"id"', b"null", b'"\\ud83d"', b'"text"'),
    *(b"## 2026-01-01\n", b"**Task:** a\n", b"**Result:** b\n", b"## Metadata\n", b"- **Generated**: [x]\n"),
    *(b"## Tags\n[a, b]\n", b"## Sealed\n", b"## Understanding\n", b"\\", b" ", b"\n\n", b"\xe2\x80\xa8"),
    *(b'{"storage": {"base_path": "."}}', b"date: 9999-99-99\n"),
]
data = st.lists(st.sampled_from(BITS) | st.binary(max_size=8), max_size=25).map(b"".join)


def check_all(files: dict[str, bytes], systems: tuple[str, ...]) -> None:
    """Each part of these files is left out, or can be stored."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "notes").mkdir()
        for path, content in files.items():
            put(folder, path, content)
        with detect(folder, systems, ("notes",)) as look:
            for part in (item.part for item in look.parts() if isinstance(item.part, Found)):
                project = "p" if part.project == HERE else part.project
                Draft(part.content, part.kind, part.category, project, part.tags, part.date).checked()
                assert all(0 < len(f"transformed:{what}") <= 64 for what in part.transformed)


@settings(max_examples=60)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PLACES, data)), st.sampled_from(["", *SYSTEMS]))
def test_files_of_any_bytes_become_memories_or_a_reason(files: dict[str, bytes], system: str) -> None:
    check_all(files, (system,) if system else ())


FILES = sorted(path for path in TREES.rglob("tree/**/*") if path.is_file() and path.stat().st_size > 100)


@pytest.mark.parametrize("systems", [(), tuple(SYSTEMS)], ids=["found", "named"])
@settings(max_examples=50)
@given(st.sampled_from(FILES), st.data())
def test_damaged_files_become_memories_or_a_reason(systems: tuple[str, ...], path: Path, drawn: st.DataObject) -> None:
    content = path.read_bytes()
    start, end = sorted(drawn.draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
    damaged = content[:start] + drawn.draw(data) + content[end:]
    check_all({str(Path(*path.relative_to(TREES).parts[2:])): damaged}, systems)
