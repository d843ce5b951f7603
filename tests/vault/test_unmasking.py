"""Each secret goes back where it was, or the edit is refused."""

from __future__ import annotations

import re

import pytest

from memory.errors import Invalid
from memory.silo.silo import Opened
from memory.vault.unmasking import put_back

ONE, TWO, THREE = "Alpha-9931-x", "Bravo-7712-y", "Delta-4408-z"
P = "[masked: password]"
LINES = f"database: the password is {ONE}\nmail: the password is {TWO}"
BLOCKS = f"database\npassword: {ONE}\n\nmail\npassword: {TWO}\n\nThe ferry leaves at ten."
ALL = [ONE, TWO, THREE]
NUMBERED = f"The keys\n1. password: {ONE}\n2. password: {TWO}\n3. password: {THREE}\nThat is all of them."


def back(said: str, edited: str) -> str:
    [found] = put_back([edited], Opened(said, ()))
    return found


@pytest.mark.parametrize(
    ("said", "edited", "wanted"),
    [
        (LINES, f"mail: the password is {P}\ndatabase: the password is {P}", [TWO, ONE]),
        (LINES, f"database: the password is {P}", [ONE]),
        (LINES, f"mail: the password is {P}", [TWO]),
        (LINES, f"Mail: the password is {P}!\nOf both:\n- database: the password is {P}", [TWO, ONE]),
        (f"It is said. Its password is {ONE}. The new password is {TWO}.", f"Its password is {P}. No more.", [ONE]),
        (BLOCKS, f"database\npassword: {P}\n\nmail\npassword: {P}\n\nThe ferry leaves at ten. Mostly.", [ONE, TWO]),
        (NUMBERED, f"The keys\n- password: {P}\n- password: {P}\n- password: {P}\nThat is all of them.\nNo.", ALL),
        (f"The password is {ONE}", f"mail: {P}", [ONE]),
        (f"The password is {ONE} and again {ONE}", f"{P}: it is {P}", [ONE, ONE]),
    ],
)
def test_where_it_was(said: str, edited: str, wanted: list[str]) -> None:
    parts = iter(wanted)
    assert back(said, edited) == re.sub(re.escape(P), lambda _: next(parts), edited)


@pytest.mark.parametrize(
    ("said", "edited"),
    [
        (LINES, f"mail: the password is {P}\nmail2: the password is {P}"),
        (LINES, f"database: the password was {P}\nmail: the password is {P}"),
        (BLOCKS, f"Two of them:\ndatabase\npassword: {P}\n\nmail\npassword: {P}\n\nThe ferry leaves at nine."),
        (BLOCKS, f"mail\npassword: {P}\n\ndatabase\npassword: {P}\n\nThe ferry leaves at ten."),
        (BLOCKS, f"mail\npassword: {P}\n\nThe ferry leaves at ten."),
        (BLOCKS, f"database\npassword: {P}\nmail\npassword: {P}\nharbour\npassword: {P}\n\nThe ferry leaves at ten."),
        (NUMBERED, f"The keys\n1. password: {P}\n2. password: {P}\nThat is all of them."),
        (f"{P} is what stands there; the password is {ONE}", f"{P}, and {P}"),
        (f"mail {ONE} password: {ONE}, database password: {TWO}", f"database password: {P}, mail password: {P}"),
        (f"The password is {ONE}", f"The password is {P}\nmail: the password is {P}"),
        (LINES, "mail: [masked: token]"),
    ],
)
def test_or_refused(said: str, edited: str) -> None:
    with pytest.raises(Invalid, match="nobody can tell which it is"):
        back(said, edited)


def test_tags_have_those_of_tags_alone() -> None:
    before = Opened(f"database: the password is {ONE}", ("ferry", f"password: {TWO}"))
    assert put_back([f"password: {P}", "boat"], before, are_tags=True) == [f"password: {TWO}", "boat"]
    assert put_back([f"database: the password is {P}"], before) == [before.content]


def test_what_a_tag_has_masked_in_the_content_is_put_back_there() -> None:
    before = Opened(f"Write {ONE} at the door.\nThe ferry leaves at ten.", (f"password: {ONE}",))
    assert put_back([f"Write {P} at the door."], before) == [f"Write {ONE} at the door."]
