"""Finds what a merge or a rewrite leaves out: numbers, dates, names, addresses, identifiers, quotations, whole sources.

The model gets a report of these details and can add those that should stay. The report never refuses an edit. It may
list too much, because each word with a capital letter counts as a name if it is not a stop word.
"""

import calendar
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from memory.search.words import LANGUAGES, nfkc, split, stemmer, stop_words
from refinement.dates import NUMBERS, Text, expressions

RELATIVE = "relative date"
LEAST_WORDS = 3  # a source with fewer content words can be left out
_MONTHS = [name.lower() for name in calendar.month_name[1:]]
_MONTH = rf"(?:{'|'.join(rf'{name[:3]}(?:{name[3:]})?' for name in _MONTHS)})\b"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?\b"
_YEAR = r"(?:,?\ \d{4}\b)?"

# Repetitions are limited, so that the time of a search is proportional to the text's length, even for a hostile text.
_SPECIFIC = re.compile(
    rf"""
      (?P<url> \b(?:[a-z][a-z0-9+.-]{{1,15}}://|www\.)[^\s<>"'`)\]]*[\w/] )
    | (?P<email> [\w.+%-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,8}} )
    | (?P<quote> "[^"\n]{{1,400}}" | “[^”\n]{{1,400}}” | «[^»\n]{{1,400}}» | `[^`\n]{{1,400}}` )
    | (?P<date> \b\d{{4}}-\d\d-\d\d\b | \b{_DAY}\ {_MONTH}{_YEAR} | \b{_MONTH}\ (?:{_DAY}{_YEAR}|\d{{4}}\b) )
    | (?P<number> (?<![\w.-])\d+(?:[.,:]\d+)*(?:st|nd|rd|th|am|pm|k|m)?(?![\w/-]) )
    | (?P<identifier> (?<!\w)(?: --?[a-z][\w-]* | [@\#][\w-]+
        | [~.]{{0,2}}(?:/\.\.?(?=/)){{0,8}}(?:/[\w.@+-]{{0,98}}\w[+-]{{0,2}}){{1,30}}
        | (?<![\w.-])(?=[\w.-])(?=[\w.:/-]{{0,50}}?(?:\d|_|::|\w\w\.\w\w|(?-i:[a-z][A-Z])))
          [\w.-]+(?:(?:::|[:/])[\w.-]+){{0,30}} )\b )
    | (?P<name> [^\W\d_]+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TERM = re.compile(r"(\d{4})-(0[1-9]|1[0-2])(?:-(\d\d))?\b|(\d+(?:[.,:]\d+)*)(?:st|nd|rd|th)?|([^\W\d_]+)")
_GROUPING = re.compile(r",(?=\d{3}(?!\d))")
_SPELLINGS = {word: str(number) for word, number in NUMBERS.items()} | {name: name[:3] for name in _MONTHS}


@dataclass(frozen=True, slots=True)
class Specific:
    """A detail that can get lost when a text is shortened. `kind` is the name of a group in the pattern `_SPECIFIC`, or
    `RELATIVE`."""

    kind: str
    text: str

    def __repr__(self) -> str:
        """Show only the kind, because the text is content."""
        return f"<Specific {self.kind}>"


def missing(sources: Mapping[int, Text], result: str, language: str) -> Iterator[tuple[int, Specific]]:
    """The details that are in a source but not in `result`, each with the number of its source, without repetitions.
    They are found one by one, so that a caller who needs only some does not wait for all.

    In the result, a date, a number or a name may have another form. These are the same: "7 May 2023" and 2023-05-07;
    "three" and 3; "Ana's" and Ana; "last Tuesday" and the date that it means, or the date of its memory. Other details
    must be in the result unchanged, except for upper and lower case.
    """
    result = nfkc(result)
    text, terms, relative = result.casefold(), _terms(result, language), expressions(result)
    for number, source in sources.items():
        plain = nfkc(source.content)
        for words, day in source.relative_dates.items():
            plain = plain.replace(words, " ")
            days = (day.split()[-1], f"{source.origin:%Y-%m-%d}")
            if words.casefold() not in relative and not any(_terms(each, language) <= terms for each in days):
                yield number, Specific(RELATIVE, words)
        for one in dict.fromkeys(_specifics(plain, language)):
            own, may_differ = one.text.strip('"“”«»`').casefold(), one.kind in ("date", "number", "name")
            if not (_terms(own, language) <= terms if may_differ else own in text):
                yield number, one


def ignored(sources: Mapping[int, Text], result: str, usual: str) -> list[int]:
    """The sources of which `result` has no content word. A source in another language is never in the list, because the
    result may be its translation. A source with less than `LEAST_WORDS` content words is not in the list, either.
    `usual` is the language of most memories."""
    language = _language(result, usual)
    stem, common = stemmer(language), stop_words(language)
    texts = [result, *(each.content for each in sources.values())]
    kept, *own = ({stem(word) for word in split(text) if word not in common} for text in texts)
    found = zip(sources, own, strict=True)
    far = [number for number, words in found if len(words) >= LEAST_WORDS and kept.isdisjoint(words)]
    return [number for number in far if _language(sources[number].content, usual) == language != ""]


def _language(text: str, usual: str) -> str:
    """The language whose stop words are most frequent in a text. If this is true for several languages, the result is
    `usual` if it is one of them, and "" otherwise. A text without stop words has the language ""."""
    counts = Counter(language for word in split(text) for language in _languages().get(word, ()))
    most = [language for language, count in counts.items() if count == max(counts.values())]
    return usual if usual in most else most[0] if len(most) == 1 else ""


@cache
def _languages() -> dict[str, list[str]]:
    """Map each stop word to its languages."""
    return {word: [x for x in LANGUAGES if word in stop_words(x)] for each in LANGUAGES for word in stop_words(each)}


def _specifics(text: str, language: str) -> Iterator[Specific]:
    common = stop_words(language)
    for found in _SPECIFIC.finditer(text):
        if found.lastgroup != "name" or (found[0][0].isupper() and found[0].casefold() not in common):
            yield Specific(str(found.lastgroup), found[0])


def _terms(text: str, language: str) -> set[str]:
    """The words and numbers of a text in a common form: numbers in digits, months as three letters, and other words as
    their stems."""
    stem = stemmer(language)
    terms: set[str] = set()
    for year, month, day, number, word in _TERM.findall(text):
        if word:
            terms.add(_SPELLINGS.get(word.casefold()) or stem(word.casefold()))
        elif number:
            terms.add(_GROUPING.sub("", number).lstrip("0") or "0")
        else:
            terms |= {year, _MONTHS[int(month) - 1][:3], *([day.lstrip("0")] if day else ())}
    return terms
