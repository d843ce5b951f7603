"""Every test that the documentation and the table of requirements name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUSTS = ROOT / "tests" / "rules" / "musts.md"
_NODE_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_NAME = re.compile(r"`(?:[\w/]+\.py::)?(test_\w+)`")


def _functions() -> dict[str, set[str]]:
    """The functions of each file of tests, by the file's path."""
    return {
        file.relative_to(ROOT).as_posix(): set(re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE))
        for file in (ROOT / "tests").rglob("test_*.py")
    }


def test_every_named_test_exists() -> None:
    functions = _functions()
    pages = [page.read_text("utf-8") for page in (MUSTS, *(ROOT / "docs").rglob("*.md"))]
    named = [found for page in pages for found in _NODE_ID.findall(page)]
    assert [(file, test) for file, test in named if test not in functions.get(file, ())] == []
    everywhere = set().union(*functions.values())
    assert {name for page in pages for name in _NAME.findall(page)} - everywhere == set()


def _names_one_to_three_tests(cell: str) -> bool:
    """Whether the cell has only node ids, each once."""
    named = _NODE_ID.findall(cell)
    return 1 <= len(set(named)) == len(named) <= 3 and cell.count("`") == 2 * len(named)


def test_every_requirement_names_one_to_three_tests() -> None:
    rows = [line.split(" | ") for line in MUSTS.read_text("utf-8").splitlines() if "::test_" in line]
    assert len(rows) == 44
    assert [row for row in rows if not _names_one_to_three_tests(row[2])] == []


def test_every_attack_of_the_threat_model_names_one_to_three_tests() -> None:
    page = (ROOT / "docs/internals/threat-model.md").read_text("utf-8").partition("\n## Not defended")[0]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] not in ("| Attack", "| ---")]
    assert len(rows) > 40
    assert [row for row in rows if len(row) != 3 or not _names_one_to_three_tests(row[2])] == []
