"""The values of a memory: each refusal names its field and quotes nothing."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from memory import errors
from memory.models import Agent, Kind, Memory
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft, parse_moment
from memory.writing import operations
from tests.privacy.watch import told_by
from tests.steps import ME, PERSON, refused, remember

FAR_WEST = timezone(timedelta(hours=-14))
INVALID: dict[str, list[Any]] = {
    "content": ["", " \t\n", "x" * 10_001, "secret\0", "secret\ud800", b"secret", None],
    "kind": ["diary", ["core"]],
    "source": ["rumour"],
    "category": ["secrets", ["topic"]],
    "project": ["a b", "../etc", "a..b", "x" * 101, "site\n", 5],
    "tags": ["secret", None, [""], ["x" * 65], ["secret\0"], ["\udfff"], [5], [str(i) for i in range(257)]],
    "origin": [datetime(2026, 1, 1), "2026-01-01", datetime.max.replace(tzinfo=FAR_WEST)],  # noqa: DTZ001  naive
}


def test_an_invalid_value_is_refused_and_not_quoted() -> None:
    for field, values in INVALID.items():
        for value in values:
            with pytest.raises(errors.Invalid) as caught:
                Draft(**{"content": "tea"} | {field: value}).checked()
            assert caught.value.field == field
            assert "secret" not in "".join(told_by(caught.value))


def test_valid_values_are_kept_and_tags_are_trimmed() -> None:
    for content in ("x", "x" * 10_000, "😀" * 10_000, "\n x", "a\u202eb", "\"\\'); DROP TABLE"):
        assert Draft(content).checked().content == content
    for project in ("site", "github.com/acme/site", "a@b", "x" * 100, "0-_.x"):
        assert Draft("tea", project=project).checked().project == project
    assert Draft("tea", tags=[" a ", "b", "a"]).checked().tags == ("a", "b")


def test_every_category_and_kind_can_be_stored(ada: Agent) -> None:
    drafts = [Draft("tea", category=category, kind=kind) for category in SCOPES for kind in Kind.values]
    operations.remember(ada, drafts, ME)
    stored = Memory.objects.filter(agent=ada).values_list("category", "kind").order_by("number")
    assert list(stored) == [(draft.category, draft.kind) for draft in drafts]


def test_a_moment_is_read_as_utc() -> None:
    for text in ("2026-02-01T09:30:00Z", "2026-02-01T11:30:00+02:00", "2026-02-01 09:30"):
        assert parse_moment("since", text) == datetime(2026, 2, 1, 9, 30, tzinfo=UTC)
    for wrong in ("", "secret", "2026-13-01", None, 5, "9999-12-31T23:59:59-14:00"):
        with pytest.raises(errors.Invalid) as caught:
            parse_moment("since", wrong)
        assert caught.value.field == "since"
        assert "secret" not in str(caught.value)


def test_an_unknown_number_or_an_invalid_reason_is_refused(ada: Agent) -> None:
    remember(ada, "tea")
    for number in (0, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30):
        with refused(ada, errors.UnknownMemory):
            operations.discard(ada, [1, number], PERSON)
    for reason in ("secret\0", "secret\ud800"):
        with refused(ada, errors.Invalid) as caught:
            operations.unprotect(ada, [1], PERSON, reason=reason)
        assert "secret" not in str(caught.value)
