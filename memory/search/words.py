"""Normalize and casefold text, and split it into words. A series of CJK characters is split into overlapping pairs.

This module also has the stop words (stopwords.toml) and the stemmer of each language.
"""

import re
import tomllib
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

import Stemmer

_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
)
# Python's \w does not match combining marks. Without them, words in Hindi, Thai or pointed Hebrew would be split at
# every vowel.
_MARKS = "".join(
    chr(code)
    for block in (range(0x0300, 0x20D0), range(0xA66F, 0xAC00))
    for code in block
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
_WORD = rf"[^\W_{_CJK}][^\W_{_CJK}{_MARKS}]*(?:[{_MARKS}]+[^\W_{_CJK}]*)*"
_find_words = re.compile(_WORD).findall
_find_words_and_runs = re.compile(rf"[{_CJK}]+|{_WORD}").findall
_has_cjk = re.compile(f"[{_CJK}]").search
_is_cjk = re.compile(f"[{_CJK}]{{1,2}}").fullmatch

# Latin-1 characters that NFKC does not change, and other characters that separate words: dashes, typographic quotes,
# currencies, arrows, emoji.
_PLAIN = (
    "\x00-\u00a7\u00a9\u00ab-\u00ae\u00b0\u00b1\u00b6\u00b7\u00bb\u00bf-\u00ff"
    "\u2010-\u2027\u2030-\u203d\u20a0-\u20a7\u20a9-\u20bf\u2190-\u21ff\u2600-\u2775\u2794-\u27bf\U0001f300-\U0001faff"
)
_beyond_plain = re.compile(f"[^{_PLAIN}]").search
# This table makes ASCII letters lower case, keeps casefolded Latin-1 letters and digits, and replaces all other
# characters with a space.
_TABLE = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(256))


def split(text: str) -> list[str]:
    """Return the words of a text, in order.

    Each CJK character starts a word. This word has the character and the next character. The last character of a series
    is a word of one character. So phrases can be compared word by word.
    """
    # Most text is simple. For simple text, a byte table gives the same words three times faster than the expressions.
    if text.isascii():
        return text.encode().translate(_TABLE).decode().split()
    if not _beyond_plain(text):
        return text.casefold().encode("latin-1", "replace").translate(_TABLE).decode("latin-1").split()
    return split_any(text)


LONG_SERIES = re.compile(r"([^\w\s\x00-\x7f]{30})[^\w\s\x00-\x7f]+")


def nfkc(text: str) -> str:
    """Return the text in the form NFKC. Of a series of marks or signs, only the first 30 stay, because the time grows
    with the square of the length of a series of combining marks. A few signs become 18 letters, so the result is cut
    at four times the length."""
    return unicodedata.normalize("NFKC", LONG_SERIES.sub(r"\1", text))[: 4 * len(text) + 100]


def split_any(text: str) -> list[str]:
    # Casefolding can undo the normalization, so the text is normalized again.
    text = nfkc(nfkc(text).casefold())
    if not _has_cjk(text):
        return _find_words(text)
    return [word for found in _find_words_and_runs(text) for word in _pairs(found)]


def _pairs(found: str) -> list[str]:
    if not _has_cjk(found[0]):
        return [found]
    return [found[position : position + 2] for position in range(len(found))]


def without_tails(words: list[str]) -> list[str]:
    """Return the words. If a single character ends a series of CJK characters, it is left out, because the last pair of
    the series already contains it."""
    return [word for before, word in zip(["", *words], words, strict=False) if not _is_tail(before, word)]


def _is_tail(before: str, word: str) -> bool:
    return len(word) == 1 and len(before) == 2 and before[1] == word and is_cjk(before)


def is_cjk(word: str) -> bool:
    return not word.isascii() and _is_cjk(word) is not None


def name_key(name: str) -> str:
    """Return the normalized form of a tag. Two tags with the same normalized form are the same tag."""
    return " ".join(nfkc(nfkc(name).casefold()).split())


# "porter" and "dutch_porter" are older versions of other stemmers. "other" is a language without a stemmer.
LANGUAGES = (frozenset(Stemmer.algorithms()) - {"porter", "dutch_porter"}) | {"other"}


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the most common words of a language. Such words do not help to find a memory."""
    lists: dict[str, str] = tomllib.loads(Path(__file__).with_name("stopwords.toml").read_text("utf-8"))
    return frozenset(lists.get(language, "").casefold().split())


def stemmer(language: str) -> Callable[[str], str]:
    """Return the Snowball stemmer of a language. For an unknown language, return a function that does not change
    words."""
    if language not in Stemmer.algorithms():
        return str
    # The stemmer's own cache is off: the vocabulary already has all stems, and a cache would keep removed content.
    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return stem
