"""The pages of an index: their text, and what mends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.models import Agent
from memory.writing import operations
from tests.steps import ME, remember
from tests.vault.test_commands import rules


def test_the_page_says_what_it_is_and_what_is_struck(ada: Agent, vault: Path) -> None:
    remember(ada, "Green tea", "Black tea", category="technical")
    operations.discard(ada, [2], ME)
    title, blank, about, *lines = (vault / "index.md").read_text().splitlines()
    assert (title, blank) == ("# Memory Index", "")
    assert about.startswith(
        "A line for each file, in the order in which they were written. A struck line names a file "
    )
    assert "`manage.py vault index` writes this page again" in about
    assert lines[-3:] == [
        f"- {lines[-3][2:12]} technical [000001-green-tea](common/technical/000001.md)",
        f"- {lines[-3][2:12]} technical [000002-black-tea](common/technical/000002.md)",
        f"- {lines[-3][2:12]} technical ~~000002-black-tea~~",
    ]


@pytest.mark.parametrize("deed", [("index",), ("index", "--repair"), ("init",)])
def test_a_line_that_is_there_twice_is_there_once_when_the_index_is_mended(
    ada: Agent, vault: Path, deed: tuple[str, ...]
) -> None:
    rules("store", "Green tea", "--category", "technical")
    rules("store", "Black tea", "--category", "contextual")
    pages = [vault / "index.md", *vault.glob("projects/*/index.md")]
    before = [page.read_text() for page in pages]
    for page, text in zip(pages, before, strict=True):
        page.write_text(text + text.splitlines(keepends=True)[-1] * 2)
    assert rules(*deed).code == 0
    after = [sorted(page.read_text().splitlines()) for page in pages]
    assert (len(pages), after) == (2, [sorted(text.splitlines()) for text in before])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), ["memory is on, rules 1.0.0", "automatic recording is off", "the analysis of git history is off"]),
        (("--recording",), ["automatic recording is on"]),
        (("--category", "topic"), ["on  topic            project "]),
    ],
)
def test_status_says_in_lines_what_is_on(ada: Agent, vault: Path, options: tuple[str, ...], told: list[str]) -> None:
    rules("enable", *options, "--yes")
    lines = rules("status").out.splitlines()
    assert [line for line in told if not any(line in each for each in lines)] == []


def test_status_says_how_the_vault_is(ada: Agent, vault: Path) -> None:
    rules("store", "Green tea", "--category", "technical")
    assert rules("status").out.splitlines()[-1] == (
        f"vault {vault}, 1 file, in sync with its silo; 'manage.py vault index acme/ada --check' compares each"
    )
    rules("settings", "version", "1.1.0")
    assert (
        rules("status").out.splitlines()[-1]
        == "1 file of another version: 'manage.py vault index acme/ada' writes it again"
    )


def test_without_a_vault_status_says_so(ada: Agent, site: Path) -> None:
    assert (
        rules("status").out.splitlines()[-1]
        == "no vault, so no files; 'manage.py project init acme/ada --vault' creates one"
    )
