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


def test_every_requirement_names_one_to_three_tests() -> None:
    rows = [line.split(" | ") for line in MUSTS.read_text("utf-8").splitlines() if "::test_" in line]
    assert len(rows) == 44
    for _, _, tests in rows:
        named = _NODE_ID.findall(tests)
        assert 1 <= len(set(named)) == len(named) <= 3
        assert tests.count("`") == 2 * len(named), "only node ids"
