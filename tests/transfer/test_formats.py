"""Texts that are split, front matter, exports in unusual forms, and files of any bytes."""

import gzip
import io
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy.validation import Draft, checked_content
from memory.transfer.formats import letta, mem0
from memory.transfer.formats.json_file import MAX_ENTRY
from memory.transfer.formats.pages import MAX_LENGTH, Value, as_list, split_front_matter
from memory.transfer.formats.parts import HERE, Found, LeftOut, Names, Unfit, decoded, fit, in_parts, says_nothing, tidy
from memory.transfer.reading import detect
from memory.transfer.systems import SYSTEMS
from tests.growth import growth
from tests.transfer.folders import found, put
from tests.transfer.test_systems import TREES

BITS = [
    *("# A\n", "## B\n", "### A\n", "```\n", "~~~\n", "\n", "\n\n", " " * 90, "word " * 700, "x" * 4_000, "。" * 3_000),
    *("One. Two! " * 300, "line\n" * 900, "  # odd ##\n", "#no\n", "\t", "\N{DUCK}" * 2_500, "#\n", "\u2028", "\x1c"),
]
LONG_TEXTS = st.lists(st.sampled_from(BITS), max_size=30).map("".join)
SECTION = "x " * 4_000


def parts(text: str) -> list[tuple[str, str]]:
    whole = Found("text", "", "contextual")
    return [(found.key.removeprefix("text").removeprefix("-"), found.content) for found in in_parts(whole, tidy(text))]


def suffixes(text: str) -> list[str]:
    return [suffix for suffix, _ in parts(text)]


def without_spaces(text: str) -> str:
    return "".join(text.split())


@given(LONG_TEXTS)
@example("# only\n" * 4_000)
@example("\n" + " " * 20_000 + "x")
def test_parts_are_short_enough_and_lose_no_text(text: str) -> None:
    found = parts(text)
    assert without_spaces("".join(content for _, content in found)) == without_spaces(text)
    assert [checked_content(content) for _, content in found] == [content for _, content in found]
    assert len({suffix for suffix, _ in found}) == len(found)
    for _, content in found:
        assert parts(content) == [("", content)]


def test_a_short_text_is_not_split() -> None:
    assert (parts("# A\n\n# B\n"), parts(" \n\n")) == ([("", "# A\n\n# B")], [])


@pytest.mark.parametrize("between", ["\n\n", ". ", "\n", " "])
def test_text_is_split_between_paragraphs_sentences_lines_or_words(between: str) -> None:
    text = ("x" * 5_990 + between) * 3
    assert [len(content) for _, content in parts(text)] == [5_990 + (between == ". ")] * 3


def test_the_names_of_parts_are_their_headings() -> None:
    assert suffixes(f"# !\n{SECTION}\n# ?\n{SECTION}\n# a\n{SECTION}") == ["", "2", "a"]
    assert suffixes(f"```x```\n# A\n{SECTION}\n# B\n{SECTION}") == ["", "b"]  # code in a line is not a fence
    names = Names()
    headings = ["a", "a", "a-2", "a", "", "", "2", ""]
    assert [names.name(name) for name in headings] == ["a", "a-2", "a-2-2", "a-3", "", "2", "2-2", "3"]


def test_a_short_section_joins_the_next_and_the_last_section_joins_the_one_before() -> None:
    long = "x " * 3_000
    text = f"# Title\n\n## A\n{long}\n## B\nshort\n## C\n{long}\n## D\nlast\n"
    assert [(suffix, "D" in content) for suffix, content in parts(text)] == [("title", False), ("b", True)]
    text = f"## A\n{long}\n## B\n{'y ' * 1_000}\n## Conclusion\n{'z ' * 1_000}"
    assert [(suffix, "Conclusion" in content) for suffix, content in parts(text)] == [("a", False), ("b", True)]
    text = f"# Title\n\n## A\n{'x ' * 4_996}\n## B\n{'y ' * 4_996}"
    assert all("x" in content or "y" in content for _, content in parts(text))  # a title alone is not a part


@pytest.mark.parametrize(
    "hostile", ["# a\n", "\n", "#", "`", "```\n", " ", "a" * 9 + " ", "\u0301", ".", "# a-2\n# a\n", "# \u0301\u0316"]
)
def test_time_grows_with_the_length_of_the_text(hostile: str) -> None:
    assert growth(lambda size: parts(hostile * (size // len(hostile.encode()))), 2**18) < 10


def test_a_byte_order_mark_and_line_ends_are_corrected() -> None:
    found = decoded(b"\xef\xbb\xbf\r\n \r\n  a\r\n\rb \r\n\n")
    assert (found.text, found.transformed) == ("  a\n\nb", ("byte order mark left out", "line ends made LF"))
    assert decoded(b"a").transformed == ()


def test_bytes_and_values_that_are_not_text_are_refused() -> None:
    for data, why in (
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n", "is empty"),
        (b"a\0", "contains a NUL character"),
        (b"a" + b"\n" * 200_001 + b"a", "has more than 200,000 lines"),
        (b"\xff\xfea\0", "is not UTF-8 text"),
        (b"\xed\xa0\xbd", "is not UTF-8 text"),
    ):
        with pytest.raises(Unfit) as refused:
            decoded(data)
        assert (refused.value.why, refused.value.__context__) == (why, None)
    values = {7: "has no text", " \n": "has no text", "a\0": "contains a NUL character"}
    for value, why in (values | {"\ud83d": "contains an incomplete character"}).items():
        with pytest.raises(Unfit, match=why):
            fit(value)


def fields(*lines: str) -> dict[str, Value]:
    split = split_front_matter("\n".join(["---", *lines, "---", "body"]))
    assert split is not None
    assert split[1].strip() == "body"
    return dict(split[0])


@given(st.text(max_size=200), st.lists(st.text("ab{}'\" [],\\", max_size=8), max_size=5).map(",".join))
def test_any_text_is_read_or_refused(text: str, items: str) -> None:
    for each in as_list(items):
        assert each == each.strip() != ""
    if (split := split_front_matter(f"---\n{text}\n---\n")) is not None:
        assert all(isinstance(value, str | tuple) for value in split[0].values())


def test_a_value_is_a_text_or_a_list() -> None:
    values: dict[str, Value] = {
        "a: b": "b",
        "a: true": "true",
        "a: 2026-01-02": "2026-01-02",
        "a: 'it''s' # d": "it's",
        "a:": "",
        "a: []": (),
        "a: [b, 'c, d'] # g": ("b", "c, d"),
        "a: **/*.ts": "**/*.ts",
        "a: {b,c}/**": "{b,c}/**",
        'a: "b", "c"': '"b", "c"',
        "a: Use it: always": "Use it: always",
        "a: !!python/object/apply:os.getcwd []": "!!python/object/apply:os.getcwd []",  # no object is made
    }
    assert {line: fields(line)["a"] for line in values} == values
    assert fields("a: [!!python/name:os.getcwd '']")["a"] in ((), ("",))
    lines = ("a:", "  - 'b, c' # d", "  - *.e", "f:", "  g: h", "j: >-", "  k", "  l")
    assert fields(*lines) == {"a": ("b, c", "*.e"), "f.g": "h", "j": "k l"}
    assert as_list("src/**/*.{ts,tsx}, 'b',\"c\"") == ["src/**/*.{ts,tsx}", "b", "c"]


def test_unreadable_front_matter_is_refused() -> None:
    lists = ["a: [b"], ["a: [" + "[" * 5_000], ["a: &x [1]", "b: [*x, *x]"], ["? [a]", ": b"]
    for lines in (*lists, ["a"], ["- a"], ["a: 'open"], ["a: \x00"], ["a: " + "b" * MAX_LENGTH]):
        assert split_front_matter("\n".join(["---", *lines, "---", "body"])) is None
    assert split_front_matter("---\na: b\n") is None


@pytest.mark.parametrize("line", ["a: [{}", "a: {}", "{}"])
@pytest.mark.parametrize("hostile", ["[", "'", "\\", ",", " #", "- a\n", ": "])
def test_a_megabyte_is_read_in_seconds(line: str, hostile: str) -> None:
    text = "---\n" + line.replace("{}", hostile * (2**20 // len(hostile))) + "\n---\nbody"
    began = time.process_time()
    for size in (len(text), MAX_LENGTH - 100):
        split = split_front_matter(f"{text[:size]}\n---\nbody")
        for value in split[0].values() if split else ():
            as_list(value)
    assert time.process_time() - began < 5


def test_messages_of_a_letta_agent_can_exceed_the_limit_of_an_entry() -> None:
    messages = [{"role": "user", "content": "x" * 10_000}] * (MAX_ENTRY // 10_000 + 1)
    file = json.dumps({"agents": [{"messages": messages, "system": ""}], "blocks": [{"id": "b", "value": "text"}]})
    assert [part.key for part in letta.parts(io.BytesIO(file.encode()), "x.af")] == ["x.af#b", "x.af#messages"]
    bare = b'{"agents": [{"id": "agent-0", "memory_blocks": []}]}'
    assert list(letta.parts(io.BytesIO(bare), "x.af")) == [LeftOut("x.af", "is empty")]


def test_a_letta_agent_can_contain_its_blocks(tmp_path: Path) -> None:
    """Files that people wrote, and files that were made from a request, have this form."""
    persona = {"label": "persona", "value": "I keep the desk.", "limit": 5_000, "description": "who I am"}
    fares = {"label": "fares", "value": "Under six: free.", "metadata": {"source": "talks"}}
    agents = [
        {"id": f"agent-{n}", "agent_type": "letta_v1_agent", "block_ids": [], "memory_blocks": [block]}
        for n, block in enumerate((persona, fares))
    ]
    file = json.dumps({"agents": agents, "messages": []})
    put(tmp_path, "desk.af", file)
    put(tmp_path, "desk.json", file.replace("desk", "quay").replace("six", "seven"))
    memories = list(found(tmp_path)[0].values())
    assert [(part.key, part.content, part.category, part.tags) for part in memories[:2]] == [
        ("desk.af#memory_blocks/persona", "I keep the desk.", "behavioral", ("label:persona",)),
        ("desk.af#memory_blocks/fares", "Under six: free.", "contextual", ("label:fares", "source:talks")),
    ]
    assert len(memories) == 4


@pytest.mark.parametrize("packed", [gzip.compress(b"{}"), b"PK\x03\x04\x14\0"], ids=["gzip", "zip"])
def test_an_archive_of_openmemory_is_reported(packed: bytes) -> None:
    [part] = mem0.parts(io.BytesIO(packed), "export")
    assert part == LeftOut("export", "is an archive: unpack it, and import OpenMemory's memories.json")


class Rewritten(io.BytesIO):
    """A file that becomes shorter after the first pass."""

    def seek(self, at: int, whence: int = 0) -> int:
        self.times = getattr(self, "times", 0) + 1
        if self.times == 5:  # each search for a byte order mark takes two
            self.truncate(len(self.getvalue()) // 2)
        return super().seek(at, whence)


def test_a_file_that_changes_between_two_passes_is_refused() -> None:
    file = Rewritten(json.dumps({"results": [{"memory": "marker-words"}] * 9}).encode())
    with pytest.raises(Invalid, match="changed while it was read: it is not valid JSON") as refused:
        list(mem0.parts(file, "a.json"))
    assert "marker-words" not in repr(refused.value)
    assert refused.value.__context__ is None


PLACES = [
    *(".cursor/rules/a.mdc", ".github/instructions/a.instructions.md", "CLAUDE.md", ".claude/memory/a.md"),
    *(".windsurf/rules/a.md", ".clinerules/a.md", "memory-rules/settings.json", "memory/common/technical/a.md"),
    *("memory/private/keys/a.md", "memory/projects/p/topics/a.md", "memories/a.xml", "logs/a.md"),
    *("exports/a.json", "exports/b.jsonl", "agents/a.af", "notes/a.json", "notes/a.md"),
]
BYTES = [
    *(b"---\n", b"globs: a\n", b"- b\n", b"paths: []\n", b"# H\n", b"```\n", b"@a/b.md ", b"x" * 6_000, b"\r\n", b"\0"),
    *(b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b"]", b",", b":", b'"memory"', b'"results"'),
    *(b"1e999", b'"content"', b'"blocks"', b'"agents"', b'"data"', b'"id"', b"null", b'"\\ud83d"', b'"text"'),
    *(b"## 2026-01-01\n", b"**Task:** a\n", b"**Result:** b\n", b"## Metadata\n", b"- **Generated**: [x]\n"),
    *(b"## Tags\n[a, b]\n", b"## Sealed\n", b"## Understanding\n", b"\\", b" ", b"\n\n", b"\xe2\x80\xa8"),
    *(b'{"storage": {"base_path": "."}}', b"date: 9999-99-99\n"),
]
data = st.lists(st.sampled_from(BYTES) | st.binary(max_size=8), max_size=25).map(b"".join)


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


def test_a_text_without_words_says_nothing_and_is_checked_in_linear_time() -> None:
    assert says_nothing("# Tea\n  \n@a.md @b.md\n===\n----\n##\n")
    assert [says_nothing(text) for text in ("tea", "@a b", "-- ", "#tea", "= x")] == [False] * 5
    assert growth(lambda size: says_nothing(f"{' ' * size}x"), 2_000) < 10
