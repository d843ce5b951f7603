"""What masking promises of any text: nothing that would be found is passed over for speed, what is masked stays as it
is, and JSON stays JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.masking import named_secrets, placed_secrets, token_shapes, told_secrets
from memory.masking.scanner import holds_token, masked, masked_together, taken_out
from memory.masking.secret_finding import Finder, Sieve
from memory.masking.seen_text import MASKED, PLACE, seen
from tests.rules.test_masked_forms import INNOCENT, MIXED_FORMS, PLACED, SAID, TOKENS

FINDERS = (*token_shapes.FINDERS, *placed_secrets.FINDERS, *told_secrets.FINDERS, *named_secrets.FINDERS)
SIEVE = Sieve(FINDERS)
FORMS = [around.replace("§", secret) for around, secret in SAID + PLACED + MIXED_FORMS]
PIECES = [
    *(
        "password",
        "Passwort",
        "пароль",
        "密码",
        "パスワード",
        "token",
        "secret",
        "api key",
        "pin",
        "pass",
        "key",
        "pwd",
    ),
    *(" is ", "'s ", "=", ": ", ":", " = ", " to ", " - ", "：", "は", "是", " as the ", "use ", "set the ", " is my "),
    *("hunter2", "swordfish", "correct horse battery", "red", "4711", "12345678", "Tr0ub4dor&3", "required", "it"),
    *(
        "\n",
        " ",
        "\t",
        "'",
        '"',
        '\\"',
        "`",
        "\\",
        "\\n",
        "|",
        "| ",
        "\n|---|---|\n",
        "<",
        ">",
        "</",
        "<password>",
        ",",
        ";",
    ),
    *("\u200b", "\xa0", "ſ", "\u212a", "İ", "ı", "ﬁ", "ß", "Σ", MASKED, "\ufffd", "[masked: x]", "[masked: ", "]"),
    *(
        "://",
        "@",
        "a",
        "user",
        "login",
        "curl -u bob:",
        "mysql -p",
        "Cookie: sid=",
        "-----BEGIN PRIVATE KEY-----\n",
        "?sig=",
    ),
    *(
        "-----END PRIVATE KEY-----",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-ant-",
        "eyJ",
        "a1B2c3D4e5F6g7H8i9J0",
        "(",
        ")",
        "the ",
        ". ",
    ),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.lists(st.sampled_from([*FORMS, *TOKENS, *INNOCENT, *PIECES]), max_size=6).map(" ".join),
    st.text(max_size=200),
)


def spans_of(finder: Finder, text: str) -> list[tuple[int, int, str]]:
    return list(finder.find(seen(text)))


@settings(max_examples=400)
@given(TEXTS)
def test_the_sieve_leaves_out_nothing_that_finds_something(text: str) -> None:
    view = seen(text)
    left = set(map(id, SIEVE.left(view)))
    for finder in FINDERS:
        if id(finder) not in left:
            assert list(finder.find(view)) == []


def patterns() -> Iterator[Any]:
    """What each finder of tokens looks for, with the finder."""
    for kind, beginnings, tail in token_shapes._BEGINNINGS:
        starts = "|".join(map(re.escape, beginnings.split()))
        yield pytest.param(f"(?:{starts}){tail}", id=f"{kind} {beginnings}")
    for kind, signs, pattern in token_shapes._SHAPES:
        yield pytest.param(pattern, id=f"{kind} {signs}")
    for detector, sign in token_shapes._DETECTORS:
        for each in detector.denylist:
            yield pytest.param(each.pattern, id=f"{detector.secret_type} {sign}")


@pytest.mark.parametrize("pattern", list(patterns()))
def test_no_token_falls_through_the_sieve(pattern: str) -> None:
    """Whatever a pattern may match, however it is written, the finders that are left mask as all of them would."""

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(re.compile(pattern), fullmatch=True))
    def holds(token: str) -> None:
        view = seen(f"x {token} y")
        everything = {span for finder in FINDERS for span in finder.find(view)}
        assert set(SIEVE.spans(view)) == everything

    holds()


@settings(max_examples=400)
@given(TEXTS)
def test_to_mask_what_is_masked_changes_nothing(text: str) -> None:
    once, _ = masked(text)
    assert masked(once) == (once, 0)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=3))
def test_nor_among_other_texts(texts: list[str]) -> None:
    once, _ = masked_together(texts)
    assert masked_together(once) == (once, 0)


@settings(max_examples=300)
@given(TEXTS)
def test_what_was_taken_out_goes_back(text: str) -> None:
    found, count = masked(text)
    told = taken_out([text])
    assert len(told) == count + len(PLACE.findall(text))
    back = iter(secret for _, secret in told)
    assert PLACE.sub(lambda _: next(back), found) == text
    assert holds_token(text) == (count > 0)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(["password", "note", "a"]), TEXTS, min_size=1), st.booleans(), st.booleans())
def test_json_with_texts_stays_json(said: dict[str, str], is_ascii: bool, is_within: bool) -> None:
    text = json.dumps(said, ensure_ascii=is_ascii)
    text = json.dumps({"body": text, "n": 1}) if is_within else text
    found = json.loads(masked(text)[0])
    assert list(found) == list(json.loads(text))


def test_every_letter_is_one_letter_in_lower_case_as_it_is_seen() -> None:
    for code in range(sys.maxunicode + 1):
        view = seen(chr(code))
        assert len(view.folded) == len(view.text) <= 1


@given(st.text(max_size=50))
def test_what_is_seen_is_told_by_its_place(text: str) -> None:
    view = seen(text)
    if view.where is not None:
        assert list(view.where) == sorted(set(view.where))
        assert all(0 <= place < len(text) for place in view.where)
        assert len(view.where) == len(view.text)
