"""Tests that the documentation and the table of requirements name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rules.musts import MUSTS

ROOT = Path(__file__).resolve().parents[2]
_NODE_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_NAME = re.compile(r"`(?:[\w/]+\.py::)?(test_\w+)`")


def _functions() -> dict[str, set[str]]:
    """The test functions of each file, by the file's path."""
    return {
        file.relative_to(ROOT).as_posix(): {
            node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
        }
        for file in (ROOT / "tests").rglob("test_*.py")
    }


def test_every_test_that_is_named_exists() -> None:
    functions = _functions()
    named = {tuple(test.split("::")) for rows in MUSTS.values() for tests in rows.values() for test in tests}
    pages = [page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md")]
    named |= {found for page in pages for found in _NODE_ID.findall(page)}
    assert {(file, test) for file, test in named if test not in functions.get(file, ())} == set()
    everywhere = set().union(*functions.values())
    assert {name for page in pages for name in _NAME.findall(page)} - everywhere == set()


def test_every_requirement_names_one_to_three_tests() -> None:
    rows = [tests for sentences in MUSTS.values() for tests in sentences.values()]
    assert len(rows) == 44
    assert all(1 <= len(set(tests)) == len(tests) <= 3 for tests in rows)
