"""Numbers: digits and words, cardinals and ordinals, with the unit they measure.

A key is the value in the smallest unit of its dimension ("1800 s" for half an hour), so that a unit written out, or
another unit for the same amount, is the same number.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from refinement.specifics.text import Mark, Specific, Word, listed

_UNIT_TABLE = """
1 s: s sec secs second seconds
60 s: min mins minute minutes
3600 s: h hr hrs hour hours
0.001 s: ms millisecond milliseconds
86400 s: d day days
604800 s: week weeks wk wks
1 month: month months
12 month: year years yr yrs
0.001 g: mg milligram milligrams
1 g: g gram grams gramme grammes
1000 g: kg kgs kilo kilos kilogram kilograms kilogramme kilogrammes
1 tonne: tonne tonnes ton tons
1 lb: lb lbs pound pounds
1 oz: oz ounce ounces
0.001 m: mm millimetre millimetres millimeter millimeters
0.01 m: cm centimetre centimetres centimeter centimeters
1 m: metre metres meter meters
1000 m: km kms kilometre kilometres kilometer kilometers k
1 mile: mile miles mi
1 ft: foot feet ft
1 inch: inch inches
0.001 l: ml millilitre millilitres milliliter milliliters
1 l: l litre litres liter liters
1 b: byte bytes
1000 b: kb kilobyte kilobytes
1000000 b: mb megabyte megabytes
1000000000 b: gb gigabyte gigabytes gig gigs
1000000000000 b: tb terabyte terabytes
1 kib: kib
1 mib: mib
1 gib: gib
1 %: % percent pct
1 °c: °c celsius
1 °f: °f fahrenheit
1 °: ° degree degrees
1 eur: € euro euros eur
1 usd: $ dollar dollars usd bucks
1 gbp: £ quid gbp
1 jpy: ¥ yen jpy
1 inr: ₹ rupee rupees inr
1 chf: franc francs chf
1 kwh: kwh
1 w: watt watts
1000 w: kw kilowatt kilowatts
"""
SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "mn": 10**6, "billion": 10**9, "bn": 10**9}
SCALES["dozen"] = 12
_SMALL = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = listed(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
)


def _units() -> dict[str, tuple[Decimal, str]]:
    table = {}
    for line in _UNIT_TABLE.strip().splitlines():
        head, _, names = line.partition(": ")
        factor, base = head.split()
        table.update(dict.fromkeys(names.split(), (Decimal(factor), base)))
    return table


UNITS = _units()
CARDINALS = {word: n for n, word in enumerate(_SMALL)} | {word: 20 + 10 * n for n, word in enumerate(_TENS)}
ORDINALS = {word: n + 1 for n, word in enumerate(_ORDINALS)} | {
    "thirtieth": 30,
    "fortieth": 40,
    "fiftieth": 50,
    "sixtieth": 60,
    "hundredth": 100,
}
_COUNTS: dict[str, int | Decimal] = {"twice": 2, "thrice": 3, "half": Decimal("0.5")}
_NUMERIC = frozenset([*CARDINALS, *SCALES, *ORDINALS, *_COUNTS]) - {"k", "mn", "bn"}

_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(
    r"(?<![\w.])(?P<sign>-)?(?P<money>[€$£¥₹]\s?)?"
    r"(?P<value>\d{1,3}(?:[,.' ]\d{3}){1,8}(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?P<glued>[^\W\d_]+|%|°[cCfF]?)?"
)
_UNIT_AFTER = re.compile(r"(?:\s?|-)([^\W\d_]+|[%€$£¥₹]|°[cCfF]?)(?![\w])")
_PER_CENT = re.compile(r"\s?per\s?cent\b", re.IGNORECASE)
_DEGREES = re.compile(r"\s?(celsius|fahrenheit|[cf])\b", re.IGNORECASE)
_DECADE = re.compile(r"(?:19|20)?(\d0s)")
_OLD = re.compile(r"[\s-]?(?:old\b|of age\b)", re.IGNORECASE)
_CODE_BEFORE = re.compile(r"(?:eur|usd|gbp|chf|jpy|inr)\s?$", re.IGNORECASE)
_LONG = 25  # digits past which Decimal would round


def digits_in(plain: str) -> Iterator[Mark]:
    """Numbers written in digits, wherever `plain` isn't masked."""
    if not _DIGIT.search(plain):
        return
    for match in _DIGITS.finditer(plain):
        glued = (match["glued"] or "").casefold()
        if _DECADE.fullmatch(match[0]) or (
            glued and glued not in UNITS and glued not in SCALES and glued not in {"st", "nd", "rd", "th", "x", "m"}
        ):
            yield _mixed(match)
        else:
            yield _digits(plain, match, glued)


def _mixed(match: re.Match[str]) -> Mark:
    """ "12b", "80s", "4x4": a number that is part of a word."""
    text = match[0]
    decade = _DECADE.fullmatch(text)
    if not decade:
        return Mark(match.start(), match.end(), Specific("identifier", text, text.casefold()), (text.casefold(),))
    keys = [decade[1]] if len(text) > 3 else [f"{text[:-1]} s", text]  # the eighties, or seconds
    return Mark(match.start(), match.end(), Specific("number", text, "|".join(keys)), tuple(keys))


def _digits(plain: str, match: re.Match[str], glued: str) -> Mark:
    values = _values(match["value"])
    if match["sign"] and match.start() and plain[match.start() - 1] != "\n":
        values = ["-" + value for value in values]
    if glued in {"st", "nd", "rd", "th"}:
        return _mark(plain, match.start(), match.end(), [f"{values[0]}th"], [values[0]])
    end = match.end() - (len(match["glued"] or "") if glued != "x" else 0)
    money = UNITS[match["money"].strip()][1] if match["money"] else _money_code(plain, match.start())
    return measured(plain, match.start(), end, values, money)


def _money_code(plain: str, start: int) -> str:
    code = _CODE_BEFORE.search(plain, max(0, start - 4), start)
    return code[0].strip().casefold() if code else ""


def _values(written: str) -> list[str]:
    """The readings of digits: "1.000" may be a thousand or one."""
    if written.isdecimal():
        return [written.lstrip("0") or "0"]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})", written):
        return [written.replace(".", ""), _plain_decimal(written)]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?", written):
        written = written.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d{1,3}(?:[,' ]\d{3})+(?:[.,]\d+)?", written):
        head, tail = re.fullmatch(r"(.*?)([.,]\d{1,2}|[.,]\d{4,})?", written).groups()  # type: ignore[union-attr]  # the pattern matches anything
        written = re.sub(r"[,' .]", "", head) + (tail or "").replace(",", ".")
    return [_plain_decimal(written.replace(",", "."))]


def _plain_decimal(written: str) -> str:
    """Without empty decimals; "3.10" stays, being no 3.1 in a version."""
    head, _, tail = written.partition(".")
    head = head.lstrip("0") or "0"
    return head if not tail.strip("0") else f"{head}.{tail}"


def measured(plain: str, start: int, end: int, values: Sequence[str], money: str = "") -> Mark:
    """The mark of a number, its scale and unit read from what follows it."""
    values, end = _scaled(plain, end, values)
    if money:
        return _mark(plain, start, end, [f"{_trimmed(v)} {money}" for v in values], values)
    units, unit_end = _units_at(plain, end)
    if not units:
        return _mark(plain, start, end, values, [])
    if _OLD.match(plain, unit_end):  # an age: "aged 5" says as much
        return _mark(plain, start, unit_end, values, [])
    keys = [f"{_times(value, factor)} {base}" for value in values for factor, base in units]
    return _mark(plain, start, unit_end, keys, values)


def _scaled(plain: str, end: int, values: Sequence[str]) -> tuple[list[str], int]:
    after = _UNIT_AFTER.match(plain, end)
    scale = SCALES.get(after[1].casefold()) if after else None
    if after is None or scale is None:
        return list(values), end
    return [_times(value, Decimal(scale)) for value in values], after.end()


def _units_at(plain: str, end: int) -> tuple[list[tuple[Decimal, str]], int]:
    per_cent = _PER_CENT.match(plain, end)
    if per_cent:
        return [UNITS["%"]], per_cent.end()
    after = _UNIT_AFTER.match(plain, end)
    if after is None:
        return [], end
    name = after[1].casefold()
    if name in {"degree", "degrees", "°"}:
        scale = _DEGREES.match(plain, after.end())
        return ([UNITS[f"°{scale[1][0].casefold()}"]], scale.end()) if scale else ([UNITS["°"]], after.end())
    if after[1] == "M":
        return [(Decimal(10**6), "")], after.end()
    if name == "m":  # metres, minutes or millions: whichever the other side says
        return [(Decimal(1), "m"), (Decimal(60), "s")], after.end()
    return ([UNITS[name]], after.end()) if name in UNITS else ([], end)


def _times(value: str, factor: Decimal) -> str:
    return value if len(value) > _LONG else _trimmed(str(Decimal(value) * factor))


def _trimmed(value: str) -> str:
    return value if len(value) > _LONG else format(Decimal(value).normalize(), "f")


def _mark(plain: str, start: int, end: int, keys: Sequence[str], also: Sequence[str]) -> Mark:
    keys = [key.strip() for key in keys]
    return Mark(start, end, Specific("number", plain[start:end].strip(), "|".join(keys)), (*keys, *also))


def compounded(plain: str, marks: Sequence[Mark]) -> list[Mark]:
    """The numbers, with "1 hour 30 minutes" and "1h30m" read as one time."""
    found: list[Mark] = []
    for mark in marks:
        whole = _sum(plain, found[-1], mark) if found else None
        found[-1:] = [whole] if whole else [*found[-1:], mark]
    return found


def _sum(plain: str, left: Mark, right: Mark) -> Mark | None:
    if plain[left.end : right.start] not in {"", " ", ", ", " and "}:
        return None
    seconds = [next((r[:-2] for r in m.specific.key.split("|") if r.endswith(" s")), "") for m in (left, right)]
    if not all(0 < len(each) < _LONG for each in seconds) or Decimal(seconds[0]) <= Decimal(seconds[1]):
        return None
    key = f"{_trimmed(str(Decimal(seconds[0]) + Decimal(seconds[1])))} s"
    return Mark(
        left.start,
        right.end,
        Specific("number", plain[left.start : right.end], key),
        (key, *left.offers, *right.offers),
    )


def number_words_in(plain: str, words: Sequence[Word]) -> Iterator[Mark]:
    """Numbers written in words: "twenty-five", "two hundred and five", "third", "a dozen", "twice"."""
    at = 0
    while at < len(words):
        if words[at].fold not in _NUMERIC:
            at += 1
            continue
        stop = _run_end(plain, words, at)
        mark = _spelt(plain, words, at, stop)
        if mark:
            yield mark
        at = stop


def _run_end(plain: str, words: Sequence[Word], at: int) -> int:
    """Where the spelt number that starts at `at` ends: one past its last word."""
    stop = at + 1
    while stop < len(words) and _joined(plain, words[stop - 1], words[stop]):
        if _continues(words[stop - 1].fold, words[stop].fold):
            stop += 1
        elif _and_continues(plain, words, stop):
            stop += 2
        else:
            break
    return stop


def _joined(plain: str, left: Word, right: Word) -> bool:
    return plain[left.end : right.start] in {" ", "-"}


def _continues(left: str, right: str) -> bool:
    if left in ORDINALS or left in _COUNTS:
        return False
    if right in SCALES:
        return True
    return (left in _TENS or left in SCALES) and (right in CARDINALS or right in ORDINALS)


def _and_continues(plain: str, words: Sequence[Word], stop: int) -> bool:
    after = stop + 1
    return (
        words[stop].fold == "and"
        and words[stop - 1].fold in SCALES
        and after < len(words)
        and _joined(plain, words[stop], words[after])
        and words[after].fold in CARDINALS
    )


def _spelt(plain: str, words: Sequence[Word], at: int, stop: int) -> Mark | None:
    folds = [word.fold for word in words[at:stop] if word.fold != "and"]
    before = words[at - 1].fold if at else ""
    after = words[stop].fold if stop < len(words) and _joined(plain, words[stop - 1], words[stop]) else ""
    if _is_idiom(folds, before, after):
        return None
    start, end = words[at].start, words[stop - 1].end
    value = _value(folds)
    if folds[-1] in ORDINALS:
        return _mark(plain, start, end, [f"{value}th"], [value])
    if folds == ["half"]:
        return _half(plain, start, end)
    return measured(plain, start, end, [value])


def _is_idiom(folds: Sequence[str], before: str, after: str) -> bool:
    """Number words that count nothing: "one of them", "no one", "at first", "a second ago"."""
    if folds == ["one"]:
        return before in _ONE_AFTER or after in _ONE_BEFORE or not after
    if folds == ["first"]:
        return before == "at" or (not before and after in {"", "of"})
    if folds == ["second"]:
        return before in UNITS or before in {"per", "each", "every"} or after in {"", "ago", "later"}
    return folds[0] in SCALES and before not in {"a", "an", "half"}


_ONE_AFTER = frozenset(listed("no any every each this that the which some another only last next first new good"))
_ONE_BEFORE = frozenset(
    listed("of another who that which day or is was has can should must will to in on for and with")
)


def _half(plain: str, start: int, end: int) -> Mark:
    """ "half an hour" is a time; half of anything else is a share."""
    article = re.compile(r"\san?\s").match(plain, end)
    if article:
        whole = measured(plain, start, article.end() - 1, ["0.5"])
        if whole.specific.key != "0.5":
            return whole
    return _mark(plain, start, end, ["0.5"], ["50 %"])


def _value(folds: Sequence[str]) -> str:
    total, part = Decimal(0), Decimal(0)
    for fold in folds:
        if fold in SCALES:
            part = (part or Decimal(1)) * SCALES[fold]
            if fold != "hundred":
                total, part = total + part, Decimal(0)
        else:
            part += CARDINALS.get(fold) or ORDINALS.get(fold) or _COUNTS.get(fold) or 0
    return format((total + part).normalize(), "f")
