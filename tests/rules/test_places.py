"""Folders and file names of a vault: the seed's tree, and names that every file system accepts (seed 004)."""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy import settings_document
from memory.policy.categories import SCOPES
from memory.policy.paths import credential_name, file_name, folder, folder_of_project, index_of, plain
from memory.policy.validation import checked_service

TREE = {
    "technical": "common/technical",
    "behavioral": "common/behavioral",
    "personal": "private/personal",
    "credentials": "private/credentials",
    "sensitive": "private/sensitive",
    "keys": "private/keys",
    "session": "projects/site/sessions",
    "topic": "projects/site/topics",
    "user_interaction": "projects/site/interactions",
    "contextual": "projects/site/contextual",
    "git_history": "projects/site/git_history",
}


def test_the_folders_are_those_of_the_requirement() -> None:
    assert {category: str(folder(category, "site", {})) for category in SCOPES} == TREE


def test_a_category_is_where_its_setting_says() -> None:
    """A forged setting does not move a private category."""

    def location(category: str, where: str) -> dict[str, Any]:
        return {"memory_rules": {"categories": {category: {"storage_location": where}}}}

    rows = [("technical", "project", "projects/site/technical"), ("session", "common", "common/sessions")]
    for category, where, path in rows:
        assert str(folder(category, "site", settings_document.checked(location(category, where)))) == path
    assert str(folder("keys", "site", location("keys", "common"))) == "private/keys"


def test_how_a_credential_is_named() -> None:
    rows = [
        ("OpenAI", "", "key", "openai-key.md"),
        ("openai-api-key", "", "key", "openai-api-key.md"),
        ("AWS", "project-a", "key", "project-a-aws-key.md"),
        ("GitHub / deploy", "", "token", "github-deploy-token.md"),
        ("../../etc/passwd", "", "key", "etc-passwd-key.md"),
        ("///", "", "key", ""),
    ]
    assert [credential_name(*row[:3]) for row in rows] == [row[3] for row in rows]


def test_a_service_name_that_is_a_secret_is_refused() -> None:
    assert checked_service("OpenAI") == "OpenAI"
    with pytest.raises(Invalid) as refused:
        checked_service("ghp_" + "a1B2c3D4" * 4 + "wxyz")
    assert (refused.value.field, "a1B2" in str(refused.value)) == ("service", False)


def test_how_a_memory_is_named() -> None:
    rows = {
        "Green tea": "000123-green-tea.md",
        "": "000123.md",
        "../../up": "000123-up.md",
        "a/b\\c:d*e?f": "000123-a-b-c-d-e-f.md",
        "Zażółć gęślą": "000123-zażółć-gęślą.md",
    }
    assert {title: file_name(123, title) for title in rows} == rows
    assert file_name(123, "NUL").startswith("000123-nul-")
    one, other = file_name(1, "x" * 300), file_name(1, "x" * 299 + "y")
    assert one != other
    assert max(len(one.encode()), len(file_name(1, "日" * 300).encode())) < 120


def test_which_index_lists_a_file() -> None:
    indexes = {"common/technical": ".", "private/keys": "private", "projects/site/sessions": "projects/site"}
    for path, index in indexes.items():
        assert index_of(PurePosixPath(path, "000001.md")) == PurePosixPath(index, "index.md")


@given(text=st.text(max_size=400))
@example("e\u0301" * 60)  # another Unicode form of a long text
def test_every_text_makes_a_safe_file_name(text: str) -> None:
    for name in (plain(text), file_name(7, text), credential_name(text, "p", text)):
        assert not {"/", "\\", "\0", ":"} & set(name)
        assert name not in (".", "..")
        assert not name.startswith(("-", "."))
        assert len(name.encode()) <= 100
        assert name == unicodedata.normalize("NFC", name)
        assert name == name.casefold() or plain(name.casefold()) != ""
        assert name.isprintable()
    assert plain(plain(text)) == plain(text) or len(plain(text)) > 60
    assert {plain(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")} == {plain(text)}


def test_folders_of_projects_have_stable_names() -> None:
    """A name that is no plain folder name gets a digest."""
    rows = {"site": "site", "Acme": "acme-37036cd8", "git.example.org/acme/site": "git.example.org-acme-site-b6f0312e"}
    assert {project: folder_of_project(project) for project in rows} == rows
    assert re.fullmatch("x+-[0-9a-f]{8}", folder_of_project("x" * 100))
    for times in (1, 60):  # two Unicode forms are two projects
        assert folder_of_project("\u00e9" * times) != folder_of_project("e\u0301" * times)
    for name in ("con", "CON"):
        assert re.fullmatch("con-[0-9a-f]{8}", folder_of_project(name))
    for project in ("Acme", "git.example.org/acme/site", "con", "x" * 100):  # the folder's name is another project
        folders = [folder_of_project(project)]
        for _ in range(3):
            folders.append(folder_of_project(folders[-1]))
        assert len(set(folders)) == len(folders)


@given(st.text("abAB/.-_@", min_size=1, max_size=12), st.text("abAB/.-_@", min_size=1, max_size=12))
def test_two_projects_have_two_folders(one: str, other: str) -> None:
    """Also on a file system that ignores case."""
    if one != other:
        assert folder_of_project(one).casefold() != folder_of_project(other).casefold()
