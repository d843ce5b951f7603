"""Masking of any text: no secret of a known form survives, masking twice equals masking once, and JSON stays JSON."""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from memory.masking import tokens
from memory.masking.pairs import HIDDEN
from memory.masking.scanner import PLACE, _view, masked, masked_together
from tests.rules.test_masking import INNOCENT, PAIRS, PLACED, TOKENS

FORMS = [around.replace("§", secret) for around, secret in PAIRS + PLACED]
PIECES = [
    *("password", "Passwort", "пароль", "密码", "token", "secret", "api key", "pin", "pass", "key", "pwd", "value"),
    *(" is ", "=", ": ", ":", " = ", " - ", "：", " for ", "hunter2", "swordfish", "correct horse battery staple"),
    *("4711", "12345678", "Tr0ub4dor&3", "required", "it", "\n", " ", "\t", "'", '"', '\\"', "`", "\\", "\\n", "|"),
    *("<", ">", "</", "<password>", ",", ";", "(", ")", "the ", ". ", "${", "}", "{{", "}}", "$(", "://", "@", "a"),
    *("\u200b", "\xa0", "ſ", "\u212a", "İ", "ı", "ﬁ", "ß", "Σ", "\ufffd", HIDDEN, "[masked: x]", "[masked: ", "]"),
    *("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----", "AKIAIOSFODNN7EXAMPLE", "sk-ant-", "eyJ", "?sig="),
    "a1B2c3D4e5F6g7H8i9J0",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.lists(st.sampled_from([*FORMS, *TOKENS, *INNOCENT, *PIECES]), max_size=6).map(" ".join),
    st.text(max_size=300),
)


def patterns() -> Iterator[Any]:
    for kind, pattern in tokens._PATTERNS:
        if kind != "Private Key":  # a block is large
            yield pytest.param(pattern.pattern, id=kind)
    for plugin in tokens._PLUGINS:
        for each in plugin.denylist:
            yield pytest.param(each.pattern, id=f"{plugin.secret_type} {each.pattern[:20]}")


@pytest.mark.parametrize("pattern", list(patterns()))
def test_no_token_survives(pattern: str) -> None:
    compiled = re.compile(pattern)

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    def holds(token: str) -> None:
        assume(len(token) >= 14)  # a shorter token matches only the pattern, not the real form
        assert not compiled.search(masked(f"x {token} y")[0])

    holds()


@settings(max_examples=300)
@given(TEXTS, st.sampled_from(PAIRS + PLACED), TEXTS)
def test_no_secret_survives_among_other_texts(before: str, form: tuple[str, str], after: str) -> None:
    around, secret = form
    assert secret not in masked(around.replace("§", secret))[0]
    texts, _ = masked_together([before, around.replace("§", secret), after])
    assert secret not in texts[1]


@settings(max_examples=400)
@given(TEXTS)
def test_masking_a_masked_text_changes_nothing(text: str) -> None:
    once, count = masked(text)
    assert masked(once) == (once, 0)
    assert (once == text) == (count == 0)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=3))
def test_masking_masked_texts_together_changes_nothing(texts: list[str]) -> None:
    once, _ = masked_together(texts)
    assert masked_together(once) == (once, 0)


@settings(max_examples=300)
@given(TEXTS)
def test_the_rest_of_a_text_stays_in_order(text: str) -> None:
    found, count = masked(text)
    assert len(PLACE.findall(found)) >= count
    at = 0
    for part in PLACE.split(found):
        at = text.index(part, at) + len(part)
    assert text.endswith(part)


@settings(max_examples=400)
@example({"a": "-----BEGIN PRIVATE KEY-----\n", "note": "-----END PRIVATE KEY-----"}, False, True)
@example({"a": "----BEGIN PRIVATE KEY----\nAX-: ", "note": '"'}, False, False)
@given(st.dictionaries(st.sampled_from(["password", "note", "a"]), TEXTS, min_size=1), st.booleans(), st.booleans())
def test_json_with_texts_stays_json(values: dict[str, str], is_ascii: bool, is_within: bool) -> None:
    text = json.dumps(values, ensure_ascii=is_ascii)
    text = json.dumps({"body": text, "n": 1}) if is_within else text
    found = json.loads(masked(text)[0])
    assert list(found) == list(json.loads(text))


def test_a_view_has_one_character_for_each_visible_one_in_lower_case_too() -> None:
    # The other planes have ideographs, private letters or nothing.
    for code in chain(range(0x20000), range(0x2F000, 0x30000), range(0xE0000, 0xE1000)):
        view, where = _view(chr(code))
        assert len(view.lower()) == len(view) == len(where) <= 1
