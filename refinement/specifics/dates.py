"""Dates and times of day, in the forms people and machines write them.

A date's key is ISO-like, with what isn't said left out: "2023-05-07", "2023-05", "--05-07", "--05", "2023", "sat".
Relative dates ("last week") are dates too; one is also kept by an absolute date the sources don't have, because
resolving it is what a rewrite should do.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date

from refinement.specifics.quantities import CARDINALS, UNITS
from refinement.specifics.text import Mark, Specific, Word, listed, mask, opens_sentence

_MONTHS = listed("january february march april may june july august september october november december")
_DAYS = listed("monday tuesday wednesday thursday friday saturday sunday")
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_MORE_DAYS = rf"(?:\s?(?:,|-|and|to|&|or|until)\s?(?:the\s)?{_DAY}(?![\w:.]\d))"

# What a date or a time can start at: a number that goes on somehow, or a year.
_DIGITS = re.compile(r"(?<!\d)(?:\d{1,4}(?=[-/.:,\sa-zA-Z])|(?:19|20)\d\d(?!\d))")
_ISO = re.compile(r"(?<![\w.-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d)(?:T(?=\d))?")
_ISO_MONTH = re.compile(r"(?<![\w.-])(\d{4})-(0[1-9]|1[0-2])(?![\w-])")
_NUMERIC = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|[.-]\d)")
_DAY_FIRST = re.compile(
    rf"(?<![\w.:])({_DAY}{_MORE_DAYS}{{0,5}})(?:\s?day)?(?:\sof)?[\s-]+({_MONTH})\b\.?(?:,?(?:\sof)?[\s-]*(\d{{4}}|'\d\d)(?![\w:]))?",
    re.IGNORECASE,
)
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\b\.?\s?(?:the\s)?({_DAY}(?!\w){_MORE_DAYS}{{0,5}})(?:,?\s(\d{{4}})(?!\w))?", re.IGNORECASE
)
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?\s(?:of\s)?(\d{{4}})(?!\w)", re.IGNORECASE)
_MONTH_ALONE = re.compile(rf"\b({'|'.join(_MONTHS)})\b", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\w.,$€£#-])((?:19|20)\d\d)(?![\w%]|[.,:]\d|-\d{3})")
_WEEKDAY = re.compile(
    r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri)\b", re.IGNORECASE
)
_BEFORE_MONTH = re.compile(
    r"\b(?:in|of|since|until|till|by|early|mid|late|last|next|this|every|during|from|through|to|and|before|after)[ -]$",
    re.IGNORECASE,
)

_SPAN = r"seconds?|minutes?|hours?|days?|nights?|weeks?|weekends?|months?|quarters?|years?|decades?|sprints?|semesters?"
_PART = r"morning|afternoon|evening|night|summer|winter|spring|autumn|fall|christmas|easter"
_NAMED = rf"(?:mon|tues|wednes|thurs|fri|satur|sun)day|{'|'.join(_MONTHS)}"
_RELATIVE = re.compile(
    r"(?:(?P<day>yesterday|today|tomorrow|tonight)"
    rf"|(?P<which>last|past|previous|next|coming|upcoming|following|this|current)\s(?P<unit>{_SPAN}|{_PART}|{_NAMED}))\b",
    re.IGNORECASE,
)
_DISTANCE = re.compile(
    rf"\b(?P<count>\d+|[a-z]+)\s(?P<span>{_SPAN})\s(?P<side>ago|earlier|later|from now)\b", re.IGNORECASE
)
_SIDES = {"last": "last", "past": "last", "previous": "last", "this": "this", "current": "this"}
_NOW = frozenset({"today", "this day", "tonight", "this night"})

_CLOCK = re.compile(r"(?<![\w:.])(\d{1,2})(?:[:.]([0-5]\d))?\s?([ap])\.?\s?m\b(?:(?<=\.m)\.)?", re.IGNORECASE)
_DAY_CLOCK = re.compile(
    r"(?<![\w:.])(\d{1,2})(?::([0-5]\d))?\s(?:o'?clock\s)?(?:in\sthe\s(morning|afternoon|evening)|at\s(night))\b",
    re.IGNORECASE,
)
_PLAIN_CLOCK = re.compile(
    r"(?<![\w:.])([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d(?:\.\d+)?(?:[+-]\d\d:?\d\d)?)?(?:Z\b|\+\d\d:\d\d)?(?![\d:])"
)
_H_CLOCK = re.compile(r"(?<![\w:.])([01]?\d|2[0-3])h([0-5]\d)\b")
_OCLOCK = re.compile(r"(?<![\w:.])(\d{1,2}|[a-z]{3,6})\so'?clock\b", re.IGNORECASE)
_NAMED_CLOCK = re.compile(r"\b(noon|midday|midnight)\b", re.IGNORECASE)


def is_relative(key: str) -> bool:
    return key.startswith("~")


def is_now(key: str) -> bool:
    """Today and its like: said by the memory's own date."""
    return is_relative(key) and (key[1:] in _NOW or key.startswith("~this "))


def _month(name: str) -> int:
    return next(n for n, month in enumerate(_MONTHS, 1) if month.startswith(name[:3].casefold()))


def _mark(plain: str, span: tuple[int, int], keys: Sequence[str], offers: Sequence[str] = ()) -> Mark:
    start, end = span
    text = plain[start:end].rstrip(" ,.T")
    return Mark(start, end, Specific("date", text, "|".join(keys)), (*keys, *offers))


def _parts(year: int | None, month: int, day: int | None) -> list[str]:
    """A date's key, then every coarser thing it tells; nothing if there is no such day."""
    try:
        known = date(year or 2000, month, day or 1)
    except ValueError:
        return []
    parts = [f"--{month:02}"]
    if day:
        parts.insert(0, f"--{month:02}-{day:02}")
        parts.append(f"{day}")
    if not year:
        return parts
    whole = [f"{year:04}-{month:02}-{day:02}"] if day else []
    weekday = [_DAYS[known.weekday()][:3]] if day else []
    return [*whole, f"{year:04}-{month:02}", *parts, f"{year}", *weekday]


def _year(written: str | None) -> int | None:
    if not written:
        return None
    digits = written.lstrip("'")
    return int(digits) if len(digits) == 4 else 2000 + int(digits) - (100 if int(digits) > 60 else 0)


def _iso(plain: str, match: re.Match[str]) -> list[Mark]:
    parts = _parts(int(match[1]), int(match[3]), int(match[4]))
    return [_mark(plain, match.span(), parts[:1], parts)] if parts else []


def _iso_month(plain: str, match: re.Match[str]) -> list[Mark]:
    parts = _parts(int(match[1]), int(match[2]), None)
    return [_mark(plain, match.span(), parts[:1], parts)] if parts else []


def _numeric(plain: str, match: re.Match[str]) -> list[Mark]:
    if len(match[4]) == 2 and match[2] == "-":
        return []
    year, one, two = _year(match[4]), int(match[1]), int(match[3])
    readings = [p for p in (_parts(year, two, one), _parts(year, one, two)) if p]
    if match[2] == ".":
        readings = readings[:1]
    keys = list(dict.fromkeys(p[0] for p in readings))
    return [_mark(plain, match.span(), keys, [k for p in readings for k in p])] if keys else []


def _named(plain: str, span: tuple[int, int], days: str, month: str, year: str | None) -> list[Mark]:
    readings = [_parts(_year(year), _month(month), int(d)) for d in re.findall(r"\d+", days)]
    return [_mark(plain, span, p[:1], p) for p in readings if p]


def _day_first(plain: str, match: re.Match[str]) -> list[Mark]:
    return _named(plain, match.span(), match[1], match[2], match[3])


def _month_first(plain: str, match: re.Match[str]) -> list[Mark]:
    return _named(plain, match.span(), match[2], match[1], match[3])


def _month_year(plain: str, match: re.Match[str]) -> list[Mark]:
    parts = _parts(int(match[2]), _month(match[1]), None) if int(match[2]) else []
    return [_mark(plain, match.span(), parts[:1], parts)] if parts else []


def _month_alone(plain: str, match: re.Match[str]) -> list[Mark]:
    """A month by its name alone; "may" and "march" only where no verb can stand."""
    if match[0].casefold() in {"may", "march", "august"}:
        led = _BEFORE_MONTH.search(plain, max(0, match.start() - 8), match.start())
        if not match[0][0].isupper() or (opens_sentence(plain, match.start()) and not led):
            return []
    key = f"--{_month(match[0]):02}"
    return [_mark(plain, match.span(), [key])]


def _year_alone(plain: str, match: re.Match[str]) -> list[Mark]:
    after = re.compile(r"\s([^\W\d_]+|[€%])").match(plain, match.end())
    if after and after[1].casefold() in UNITS:
        return []  # 2000 metres
    return [_mark(plain, match.span(), [match[1]])]


def _weekday(plain: str, match: re.Match[str]) -> list[Mark]:
    if match[2] and not match[0][0].isupper():
        return []  # "wed", a verb
    return [_mark(plain, match.span(), [match[0][:3].casefold()])]


def _relative(plain: str, match: re.Match[str]) -> list[Mark]:
    if match["day"]:
        keys, offers = [match["day"].casefold()], []
    else:
        side = _SIDES.get(match["which"].casefold(), "next")
        unit = _singular(match["unit"])
        keys = [f"{side} {unit}"]
        offers = [unit[:3]] if unit in _DAYS else [f"--{_month(unit):02}"] if unit in _MONTHS else []
    return [_mark(plain, match.span(), [f"~{key}" for key in keys], offers)]


def _distance(plain: str, match: re.Match[str]) -> list[Mark]:
    """ "3 days ago": the count is part of the date, and is offered as a number of days too."""
    count, unit = match["count"].casefold(), _singular(match["span"])
    side = "ago" if match["side"].casefold() in {"ago", "earlier"} else "on"
    number = str(CARDINALS.get(count, 1 if count in {"a", "an"} else count))
    if not number.isdigit():
        number = ""
    offers = [number, f"{_amount(number, unit)}"] if number else []
    start = match.start() if number else match.start("span")
    return [_mark(plain, (start, match.end()), [f"~{number} {unit} {side}"], offers)]


def _amount(number: str, unit: str) -> str:
    factor, base = UNITS.get(unit, (1, unit))
    return f"{int(number) * factor if len(number) < 10 else number} {base}"


def _singular(word: str) -> str:
    return word.casefold().rstrip("s") if word.casefold() != "christmas" else "christmas"


def _time(plain: str, span: tuple[int, int], hours: Sequence[int], minute: int, literal: int) -> list[Mark]:
    """A time of day: its readings, and as offers only the hour as written, so that "3:00" can't stand for 3 p.m."""
    if any(hour > 24 for hour in hours):
        return []
    keys = [f"{hour % 24:02}:{minute:02}" for hour in hours]
    text = plain[span[0] : span[1]].strip()
    offers = [keys[0], *([str(literal)] if not minute else [])]
    return [Mark(*span, Specific("time", text, "|".join(dict.fromkeys(keys))), tuple(offers))]


def _clock(plain: str, match: re.Match[str]) -> list[Mark]:
    hour = int(match[1])
    if not 1 <= hour <= 12:
        return []
    known = hour % 12 + (12 if match[3].casefold() == "p" else 0)
    return _time(plain, match.span(), [known], int(match[2] or 0), hour)


def _day_clock(plain: str, match: re.Match[str]) -> list[Mark]:
    hour = int(match[1])
    part = (match[3] or match[4]).casefold()
    is_late = part in {"afternoon", "evening"} or (part == "night" and hour > 5)
    known = hour % 12 + 12 if is_late and hour <= 12 else hour
    return _time(plain, match.span(), [known], int(match[2] or 0), hour)


def _plain_clock(plain: str, match: re.Match[str]) -> list[Mark]:
    hour = int(match[1])
    is_open = 1 <= hour <= 12 and not match[1].startswith("0")
    return _time(plain, match.span(), [hour, hour % 12 + 12] if is_open and hour < 12 else [hour], int(match[2]), hour)


def _oclock(plain: str, match: re.Match[str]) -> list[Mark]:
    hour = int(match[1]) if match[1].isdigit() else CARDINALS.get(match[1].casefold(), 99)
    return _time(plain, match.span(), [hour, hour % 12 + 12] if hour <= 12 else [hour], 0, hour)


def _named_clock(plain: str, match: re.Match[str]) -> list[Mark]:
    return _time(plain, match.span(), [0 if match[0].casefold() == "midnight" else 12], 0, 12)


_Reader = Callable[[str, re.Match[str]], list[Mark]]
_MONTH_WORDS = frozenset([*_MONTHS, *(month[:3] for month in _MONTHS), "sept"])
_DAY_WORDS = frozenset([*_DAYS, *(f"{day}s" for day in _DAYS), *listed("mon tue tues wed thu thur thurs fri")])
_RELATIVE_WORDS = frozenset(
    listed("yesterday today tomorrow tonight last past previous next coming upcoming following this current")
)
# A pattern, its reader, and the words it can start at; None for those that start at a digit.
# In this order: what one has read, the next doesn't see.
_FORMS: tuple[tuple[re.Pattern[str], _Reader, frozenset[str] | None], ...] = (
    (_ISO, _iso, None),
    (_NUMERIC, _numeric, None),
    (_ISO_MONTH, _iso_month, None),
    (_CLOCK, _clock, None),
    (_DAY_CLOCK, _day_clock, None),
    (_PLAIN_CLOCK, _plain_clock, None),
    (_H_CLOCK, _plain_clock, None),
    (_OCLOCK, _oclock, None),
    (_OCLOCK, _oclock, frozenset(CARDINALS)),
    (_DAY_FIRST, _day_first, None),
    (_MONTH_FIRST, _month_first, _MONTH_WORDS),
    (_MONTH_YEAR, _month_year, _MONTH_WORDS),
    (_DISTANCE, _distance, None),
    (_DISTANCE, _distance, frozenset([*CARDINALS, *listed("a an few several many some couple")])),
    (_YEAR, _year_alone, None),
    (_NAMED_CLOCK, _named_clock, frozenset({"noon", "midday", "midnight"})),
    (_RELATIVE, _relative, _RELATIVE_WORDS),
    (_MONTH_ALONE, _month_alone, _MONTH_WORDS),
    (_WEEKDAY, _weekday, _DAY_WORDS),
)
_WORDS = frozenset().union(*(words for _, _, words in _FORMS if words))


def dates_in(masked: str, words: Sequence[Word]) -> tuple[list[Mark], str]:
    """Dates and times, and the text with them masked; `words` are all words of the text."""
    marks: list[Mark] = []
    digits = [match.start() for match in _DIGITS.finditer(masked)]
    leads = [word for word in words if word.fold in _WORDS]
    for pattern, read, needed in _FORMS:
        starts = digits if needed is None else [word.start for word in leads if word.fold in needed]
        if not starts:
            continue
        found = [mark for match in _starting_at(starts, pattern, masked) for mark in read(masked, match)]
        if found:
            masked = mask(masked, found)
            marks += found
    return marks, masked


def _starting_at(starts: Sequence[int], pattern: re.Pattern[str], masked: str) -> Iterator[re.Match[str]]:
    """As `finditer`, but tried at the given places only: they are few, and a scan would try every character."""
    end = 0
    for start in starts:
        match = pattern.match(masked, start) if start >= end else None
        if match:
            end = match.end()
            yield match
