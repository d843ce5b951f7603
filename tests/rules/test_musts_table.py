"""docs/memory-rules.md: what must be, and must never be, names tests that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, row by row."""
    page = (ROOT / "docs" / "memory-rules.md").read_text("utf-8")
    _, found, section = page.partition(f"\n## {heading}\n")
    assert found, f"the page has no {heading}"
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert lines[1] == "| --- | --- |"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def _there_in(file: str) -> frozenset[str]:
    """The tests that a file has, as pytest finds them."""
    return frozenset(_functions(ast.parse((ROOT / file).read_text("utf-8"))))


def _functions(module: ast.Module) -> Iterator[str]:
    return (node.name for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


@pytest.mark.parametrize("row", rows("Every MUST"), ids=lambda row: row[0])
def test_what_must_be_is_held_by_tests_that_exist(row: list[str]) -> None:
    _, held = row
    named = NAMED.findall(held)
    assert named
    assert held.count("`") == 2 * len(named), "what is named is a test"
    for file, test in named:
        assert test in _there_in(file), f"{file} has no {test}"


def test_the_tables_are_whole() -> None:
    musts, headings = rows("Every MUST"), rows("The seed, heading by heading")
    assert (len(musts), len(headings)) == (40, 41)
    assert all(len(row) == 2 and all(row) for row in (*musts, *headings))
