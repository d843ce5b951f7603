"""What may be remembered: each refusal names its field and quotes nothing."""

from __future__ import annotations

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


def test_a_value_that_cannot_be_stored_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"content": ""}, "content"),
        ({"content": " \t\n"}, "content"),
        ({"content": "x" * 10_001}, "content"),
        ({"content": "secret\0"}, "content"),
        ({"content": "secret\ud800"}, "content"),
        ({"content": b"secret"}, "content"),
        ({"content": None}, "content"),
        ({"kind": "diary"}, "kind"),
        ({"kind": ["core"]}, "kind"),
        ({"source": "rumour"}, "source"),
        ({"category": "secrets"}, "category"),
        ({"category": ["topic"]}, "category"),
        ({"project": "a b"}, "project"),
        ({"project": "../etc"}, "project"),
        ({"project": "a..b"}, "project"),
        ({"project": "x" * 101}, "project"),
        ({"project": "site\n"}, "project"),
        ({"project": 5}, "project"),
        ({"tags": "secret"}, "tags"),
        ({"tags": None}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["x" * 65]}, "tags"),
        ({"tags": ["secret\0"]}, "tags"),
        ({"tags": ["\udfff"]}, "tags"),
        ({"tags": [5]}, "tags"),
        ({"tags": [str(i) for i in range(257)]}, "tags"),
        ({"origin": datetime(2026, 1, 1)}, "origin"),  # noqa: DTZ001  the naive time that is refused
        ({"origin": "2026-01-01"}, "origin"),
        ({"origin": datetime.max.replace(tzinfo=FAR_WEST)}, "origin"),
    ]
    for values, field in rows:
        with pytest.raises(errors.Invalid) as caught:
            Draft(**{"content": "tea"} | values).checked()
        assert caught.value.field == field
        assert "secret" not in "".join(told_by(caught.value))


@pytest.mark.parametrize("content", ["x", "x" * 10_000, "😀" * 10_000, "\n x", "a\u202eb", "\"\\'); DROP TABLE"])
def test_any_other_text_is_kept_as_it_is(content: str) -> None:
    assert Draft(content).checked().content == content


def test_tags_are_trimmed_and_repeats_dropped() -> None:
    assert Draft("tea", tags=[" a ", "b", "a"]).checked().tags == ("a", "b")


@pytest.mark.parametrize("project", ["site", "github.com/acme/site", "a@b", "x" * 100, "0-_.x"])
def test_a_projects_id_may_be_a_repositorys(project: str) -> None:
    assert Draft("tea", project=project).checked().project == project


def test_every_category_and_kind_can_be_stored(ada: Agent) -> None:
    drafts = [Draft("tea", category=category, kind=kind) for category in SCOPES for kind in Kind.values]
    operations.remember(ada, drafts, ME)
    stored = Memory.objects.filter(agent=ada).values_list("category", "kind").order_by("number")
    assert list(stored) == [(draft.category, draft.kind) for draft in drafts]


@pytest.mark.parametrize("text", ["2026-02-01T09:30:00Z", "2026-02-01T11:30:00+02:00", "2026-02-01 09:30"])
def test_a_moment_is_read_as_utc(text: str) -> None:
    assert parse_moment("since", text) == datetime(2026, 2, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "secret", "2026-13-01", None, 5, "9999-12-31T23:59:59-14:00"])
def test_what_is_no_moment_is_refused(text: Any) -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse_moment("since", text)
    assert caught.value.field == "since"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("reason", ["secret\0", "secret\ud800"])
def test_a_reason_that_cannot_be_stored_is_refused(ada: Agent, reason: str) -> None:
    remember(ada, "tea")
    with refused(ada, errors.Invalid) as caught:
        operations.unprotect(ada, [1], PERSON, reason=reason)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30])
def test_a_number_there_is_none_of_is_unknown(ada: Agent, number: int) -> None:
    remember(ada, "tea")
    with refused(ada, errors.UnknownMemory):
        operations.discard(ada, [1, number], PERSON)
