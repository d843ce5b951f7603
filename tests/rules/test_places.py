"""Where files lie in a vault: the seed's tree, and names no system stumbles over (seed 004, routing and naming)."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy import paths, settings_document
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


def test_the_tree_is_the_seeds() -> None:
    assert {category: str(folder(category, "site", {})) for category in SCOPES} == TREE


def test_a_category_is_where_its_setting_says() -> None:
    rows = [("technical", "project", "projects/site/technical"), ("session", "common", "common/sessions")]
    for category, location, where in rows:
        given = {"memory_rules": {"categories": {category: {"storage_location": location}}}}
        assert str(folder(category, "site", settings_document.checked(given))) == where


def test_what_is_private_stays_so_whatever_is_kept() -> None:
    forged = {"memory_rules": {"categories": {"keys": {"storage_location": "common"}}}}
    assert str(folder("keys", "site", forged)) == "private/keys"


def test_how_a_credential_is_named() -> None:
    rows = [
        ("OpenAI", "", "key", "openai-key.md"),
        ("openai-api-key", "", "key", "openai-api-key.md"),
        ("AWS", "project-a", "key", "project-a-aws-key.md"),
        ("GitHub / deploy", "", "token", "github-deploy-token.md"),
        ("../../etc/passwd", "", "key", "etc-passwd-key.md"),
        ("///", "", "key", ""),
    ]
    assert [row for row in rows if credential_name(*row[:3]) != row[3]] == []


def test_no_service_is_called_by_its_credential() -> None:
    assert checked_service("OpenAI") == "OpenAI"
    with pytest.raises(Invalid) as refused:
        checked_service("ghp_" + "a1B2c3D4" * 4 + "wxyz")
    assert refused.value.field == "service"
    assert "a1B2" not in str(refused.value)


def test_how_a_memory_is_named() -> None:
    rows = [
        ("Green tea", "000123-green-tea.md"),
        ("", "000123.md"),
        ("../../up", "000123-up.md"),
        ("a/b\\c:d*e?f", "000123-a-b-c-d-e-f.md"),
        ("Zażółć gęślą", "000123-zażółć-gęślą.md"),
        ("NUL", "000123-nul-"),
    ]
    assert [row for row in rows if not file_name(123, row[0]).startswith(row[1])] == []
    one, other = file_name(1, "x" * 300), file_name(1, "x" * 299 + "y")  # long ones are cut, and told apart
    assert one != other
    assert max(len(one.encode()), len(file_name(1, "日" * 300).encode())) < 120


def test_one_name_for_all_forms_of_a_text() -> None:
    forms = [unicodedata.normalize(form, "Zażółć Ålesund") for form in ("NFC", "NFD", "NFKC", "NFKD")]
    assert {plain(text) for text in forms} == {plain("zażółć ålesund")}


def test_which_index_lists_a_file() -> None:
    index = {"common/technical": ".", "private/keys": "private", "projects/site/sessions": "projects/site"}
    for folder_of_file, folder_of_index in index.items():
        assert index_of(PurePosixPath(folder_of_file, "000001.md")) == PurePosixPath(folder_of_index, "index.md")


@given(text=st.text(max_size=400))
def test_no_text_leads_out_of_its_folder(text: str) -> None:
    for name in (plain(text), file_name(7, text), credential_name(text, "p", text)):
        assert not {"/", "\\", "\0", ":"} & set(name)
        assert name not in (".", "..")
        assert not name.startswith(("-", "."))
        assert len(name.encode()) <= 100
        assert name == unicodedata.normalize("NFC", name)
        assert name == name.casefold() or plain(name.casefold()) != ""
        assert name.isprintable()
    assert plain(plain(text)) == plain(text) or len(plain(text)) > 60
    assert paths.PROJECTS == "projects"


def test_no_project_is_in_the_folder_of_another_by_its_name() -> None:
    """A person may name a project like a folder that they see: it is another project, in a folder of its own."""
    for project in ("Acme", "git.example.org/acme/site", "con", "x" * 100):
        folders = [folder_of_project(project)]
        for _ in range(3):
            folders.append(folder_of_project(folders[-1]))
        assert len(set(folders)) == len(folders)


def test_folders_are_called_as_they_were() -> None:
    """A name that is not a folder's name as it is has one mark."""
    rows = [
        ("site", "site"),
        ("Acme", "acme-37036cd8"),
        ("git.example.org/acme/site", "git.example.org-acme-site-b6f0312e"),
    ]
    assert [row for row in rows if folder_of_project(row[0]) != row[1]] == []
    assert re.fullmatch("x+-[0-9a-f]{8}", folder_of_project("x" * 100))
    assert re.fullmatch("con-[0-9a-f]{8}", folder_of_project("con"))
    assert re.fullmatch("con-[0-9a-f]{8}", folder_of_project("CON"))
    assert folder_of_project("con") != folder_of_project("CON")


@given(st.text("abAB/.-_@", min_size=1, max_size=12), st.text("abAB/.-_@", min_size=1, max_size=12))
def test_two_projects_have_two_folders(one: str, other: str) -> None:
    """Also where a file system tells no capitals apart."""
    if one != other:
        assert folder_of_project(one).casefold() != folder_of_project(other).casefold()
