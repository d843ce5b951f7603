"""The tables of rules that can be taken out: they fit the project as it is, and leave out no test of the docs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.rules.test_musts_table import NAMED, rows
from tests.rules_out import memory, musts, table
from tests.rules_out.entry import Rule

ROOT = Path(__file__).resolve().parents[2]
RULES = (*table.RULES, *musts.RULES)
_NAMED = re.compile(r"`(?:tests/\w+/)?(?:test_\w+\.py::)?(test_\w+)`")


@cache
def read(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what)
def test_what_is_taken_out_is_there(rule: Rule) -> None:
    for change in rule.changes:
        assert change.there in read(change.file)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what)
def test_the_tests_that_hold_it_exist(rule: Rule) -> None:
    for test in rule.tests:
        file, _, name = test.partition("[")[0].partition("::")
        assert f"def {name}(" in read(file)


def test_every_test_of_the_docs_is_seen_to_fail() -> None:
    tried = {test.partition("[")[0].partition("::")[2] for rule in table.RULES for test in rule.tests}
    named = set(_NAMED.findall(read("docs/refinement.md")))
    assert named - tried == set()


def test_every_must_is_taken_out() -> None:
    assert list(musts.MUSTS) == [what for what, _ in rows("Every MUST")]
    told = [value for value in vars(memory).values() if isinstance(value, Rule)]
    assert {*told, *memory.STEPS} == {*musts.RULES}


@pytest.mark.parametrize("row", rows("Every MUST"), ids=lambda row: row[0])
def test_every_test_of_a_must_is_seen_to_fail_without_it(row: list[str]) -> None:
    what, held = row
    tried = {test for rule in musts.MUSTS[what] for test in rule.tests}
    assert {"::".join(named) for named in NAMED.findall(held)} - tried == set()
