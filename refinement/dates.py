"""Finds relative dates in English texts, such as "last Tuesday", and computes the dates that they mean.

An expression with two meanings is left out: "next Friday" on a Monday, "recently", "last summer". So the dates are
seldom wrong, but they are not complete.
"""

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from memory.models import Memory

_ONE_TO_TWELVE = "one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: number for number, word in enumerate(_ONE_TO_TWELVE.split(), 1)}
_DAYS = [name.lower() for name in calendar.day_name]
_NEAR = {"yesterday": -1, "last night": -1, "tomorrow": 1}  # the others are the same day
_SHIFTS = {"last": -1, "past": -1, "this": 0, "next": 1}
_RELATIVE = re.compile(
    rf"""
    (?<![\w"“'‘«-]) (?<!the\ ) (?<!half\ ) (?<!than\ ) (?<!over\ ) (?<!or\ ) (?<!before\ ) (?<!after\ )
    (?: (?P<near> yesterday | last\ night | tonight | (?:today|tomorrow)(?!['’]s)
            | this\ (?:morning|afternoon|evening) )
      | (?:this\ (?=past))? (?P<which> last | this | next | (?<=this\ )past )
            \ (?P<unit> weekend | week | month | year | {"|".join(_DAYS)} )
      | (?P<count> \d{{1,2}} | an? | {"|".join(NUMBERS)} ) \ (?P<units> day | weekend | week | month | year )s?\ ago
    )\b (?!\ of\b | -\w)
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, repr=False)
class Text:
    """The content of a memory. `origin` is the day from which its relative dates count. A memory that was merged from
    memories of several days has no such day."""

    content: str
    origin: date | None

    @classmethod
    def of(cls, memory: Memory, content: str) -> "Text":
        return cls(content, None if _latest(memory) else memory.origin.date())

    @cached_property
    def relative_dates(self) -> dict[str, str]:
        """Map each relative date of the text to the date that it means: a day, a month, a year, or the first day of a
        week or a weekend. If the text also has this date, the expression is left out."""
        if self.origin is None:
            return {}
        found = {each[0]: _date(each, self.origin) for each in _RELATIVE.finditer(self.content)}
        return {words: day for words, day in found.items() if day and day.split()[-1] not in self.content}


def ledger_fields(memory: Memory, content: str) -> dict[str, object]:
    """What a ledger line says about dates besides the origin date: the latest origin date of a merged memory, and what
    relative dates mean."""
    latest, relative = _latest(memory), Text.of(memory, content).relative_dates
    return ({"origin_latest": str(latest)} if latest else {}) | ({"when": relative} if relative else {})


def still_relative(sources: Mapping[int, Text], result: str) -> list[dict[str, Any]]:
    """The relative dates that a result still has from its sources, each with the number of its source and the date that
    it means there."""
    kept = expressions(result)
    return [
        {"id": number, "text": words, "date": day}
        for number, source in sources.items()
        for words, day in source.relative_dates.items()
        if words.casefold() in kept and day.split()[-1] not in result
    ]


def expressions(text: str) -> set[str]:
    """The relative dates of a text, in lower case."""
    return {each[0].casefold() for each in _RELATIVE.finditer(text)}


def _latest(memory: Memory) -> date | None:
    """The latest origin date of a merged memory, if it is another day than the earliest."""
    latest = memory.origin_latest and memory.origin_latest.date()
    return latest if latest != memory.origin.date() else None


def _date(found: re.Match[str], day: date) -> str:
    """The date that an expression means on a day, or "" if it is unclear."""
    try:
        if near := found["near"]:
            return str(day + timedelta(_NEAR.get(near.lower(), 0)))
        if count := found["count"]:
            past = int(count) if count.isdecimal() else NUMBERS.get(count.lower(), 1)
            return _shifted(found["units"].lower(), -past, day)
        return _shifted(found["unit"].lower(), _SHIFTS[found["which"].lower()], day)
    except (ValueError, OverflowError):  # before the year 1 or after the year 9999
        return ""


def _shifted(unit: str, shift: int, day: date) -> str:
    today, monday = day.weekday(), day - timedelta(day.weekday())
    if unit == "day":
        return str(day + timedelta(shift))
    if unit == "week":
        return f"week of {monday + timedelta(7 * shift)}"
    if unit == "weekend":
        return "" if shift >= 0 and today < 3 else f"weekend of {monday + timedelta(5 + 7 * shift)}"
    if unit == "month":
        years, month = divmod(day.month - 1 + shift, 12)
        return f"{date(day.year + years, month + 1, 1):%Y-%m}"
    if unit == "year":
        return f"{date(day.year + shift, 1, 1):%Y}"
    wanted = _DAYS.index(unit)
    if shift < 0:
        return str(day - timedelta((today - wanted - 1) % 7 + 1))
    is_clear = wanted <= today if shift else wanted >= today
    return str(monday + timedelta(7 * shift + wanted)) if is_clear else ""
