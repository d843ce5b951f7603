"""`python -m tests.measure`: what counts as a code line and as an import cycle, and when it fails."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.measure import __main__ as measure
from tests.measure import source

SAMPLE = '''"""A module's docstring,
of two lines."""

import os  # a comment beside code

# a comment


def greet(
    name: str,
) -> str:
    """A docstring."""
    text = """A string

    is code."""
    return text + name
'''


def _read(root: Path, **files: str) -> list[source.Source]:
    for name, text in files.items():
        path = root / "audit" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return source.read(root)


def test_only_lines_with_code_are_counted(tmp_path: Path) -> None:
    assert source.code_lines(SAMPLE, ast.parse(SAMPLE)) == {4, 9, 10, 11, 13, 14, 15, 16}
    [sample] = _read(tmp_path, sample=SAMPLE)
    assert (sample.module, sample.physical) == ("audit.sample", 16)
    assert [(function.place, function.length) for function in sample.functions] == [("audit/sample.py:9 greet", 7)]
    assert list(measure.folders([sample])) == [("audit", 1, 8, 16), ("  audit/*.py", 1, 8, 16), ("total", 1, 8, 16)]


def test_an_import_inside_a_function_can_close_a_cycle(tmp_path: Path) -> None:
    sources = _read(
        tmp_path,
        __init__="",
        one="from audit import two",
        two="import audit.three",
        three="def run():\n    from audit.one import name",
        four="from audit import one, missing",
    )
    assert source.import_cycles(sources) == [[Path(f"audit/{name}.py") for name in ("one", "three", "two")]]


def test_a_name_of_a_package_is_an_import_of_the_package(tmp_path: Path) -> None:
    sources = _read(tmp_path, __init__="from audit import one", one="from audit import name")
    assert source.import_cycles(sources) == [[Path("audit/__init__.py"), Path("audit/one.py")]]


def test_an_import_for_types_closes_no_cycle(tmp_path: Path) -> None:
    one = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import audit.two\nelse:\n    pass"
    assert source.import_cycles(_read(tmp_path, one=one, two="import audit.one")) == []


@pytest.mark.parametrize(("cycles", "code"), [(0, 0), (1, 1)])
def test_a_figure_above_its_limit_is_named(cycles: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.judge({measure.LINES: 100, measure.CYCLES: cycles, measure.TEST_CASES: 10**6}) == code
    words = "Above the limit: import cycles 1, limit 0\n" if code else "All limits are met.\n"
    assert capsys.readouterr().out == words
