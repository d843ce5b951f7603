"""Days, months and years that a question names: what was recorded then is more likely to answer it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

Period = tuple[datetime, datetime]  # from, and before

_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_YEAR = r"(?P<year>(?:19|20)\d\d)(?!\d)"
_DAY = r"[0-3]?\d(?:st|nd|rd|th)?"
# "may" and "march" are verbs, too.
_NAMES = "|".join(f"(?-i:{name.capitalize()})" if name in ("may", "march") else name for name in _MONTHS)
_ISO = re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?(?!\d)")
_MONTH = re.compile(
    rf"(?<=[\s(,])(?:(?P<before>{_DAY})\s(?:of\s)?)?(?P<name>{_NAMES})\b(?:\s(?P<after>{_DAY})\b(?!\d))?(?:,?\s{_YEAR})?",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"(?<![\d.,:/-]){_YEAR}(?![.,:/-]\d)")
_RELATIVE = re.compile(r"\b(?:(today|yesterday)|(this|last) (week|month|year))\b", re.IGNORECASE)
_LATER = timedelta(days=7)  # what happened is often told some days later
_YEARS = 50  # of a month that names none
_DAYS = {"week": 7, "month": 31, "year": 366}


def periods(question: str, now: datetime) -> list[Period]:
    """What the question names, in UTC; a month without a year is that of any. Dates that there are not are none."""
    text = f" {question}"
    return [*_calendar(text, now), *_relative(text, now)]


def _calendar(text: str, now: datetime) -> Iterator[Period]:
    for each in _ISO.finditer(text):
        yield from _of(int(each["year"]), int(each["month"]), int(each["day"] or 0))
    for each in _MONTH.finditer(text):
        month = _MONTHS.index(each["name"].lower()) + 1
        day = int(re.sub(r"\D", "", each["before"] or each["after"] or "0"))
        for year in [int(each["year"])] if each["year"] else range(now.year - _YEARS, now.year + 1):
            yield from _of(year, month, day)
    for each in _ALONE.finditer(_MONTH.sub(" ", _ISO.sub(" ", text))):
        yield datetime(int(each["year"]), 1, 1, tzinfo=UTC), datetime(int(each["year"]) + 1, 1, 1, tzinfo=UTC)


def _of(year: int, month: int, day: int) -> Iterator[Period]:
    try:
        begin = datetime(year, month, day or 1, tzinfo=UTC)
    except ValueError:
        return
    end = begin + timedelta(days=1) if day else (begin + timedelta(days=31)).replace(day=1)
    yield begin, end + _LATER


def _relative(text: str, now: datetime) -> Iterator[Period]:
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day, which, length in _RELATIVE.findall(text):
        if day:
            begin = today - timedelta(days=day.lower() == "yesterday")
            yield begin, begin + timedelta(days=1)
        else:
            span = timedelta(days=_DAYS[length.lower()])
            yield today - span * (1 + (which.lower() == "last")), today + timedelta(days=1)
