"""The part of a memory that concerns other memories, for results with a limit of tokens."""

import re
from collections.abc import Sequence

from memory.search.words import split, stemmer, stop_words

NOTHING = "…"
MOST_WORDS = 20  # of the part that concerns one memory
LEAST_SHARED = 2  # words, or a quarter of the part's words: one word is often only a name

_SENTENCES = re.compile(r"(?<=[.;!?。！？])\s+|\n+")


def excerpt(text: str, others: Sequence[str], query: str, language: str) -> str:
    """Return the parts of `text` that say something else about the other texts: for each of them, the sentence that
    has the most words of it and of the query. A longer sentence is cut. A short text is one part.

    The result is `NOTHING` if there is no such part, or if the other texts say the same.
    """
    is_short = len(text.split()) <= MOST_WORDS
    pieces = [text] if is_short else [piece for sentence in _SENTENCES.split(text) for piece in _cut(sentence)]
    stem, chosen = stemmer(language), set()
    common = set(map(stem, stop_words(language)))
    words, theirs = ([set(map(stem, split(each))) for each in group] for group in (pieces, others))
    asked = set(map(stem, split(query)))
    for own in theirs:
        wanted = (own | asked) - common
        best = max(range(len(words)), key=lambda place: (len(words[place] & wanted), -len(words[place])))
        is_related = len(words[best] & wanted) >= min(LEAST_SHARED, len(words[best] - common) / 4)
        if (is_short or is_related) and not words[best] <= own:
            chosen.add(best)
    return f" {NOTHING} ".join(pieces[place] for place in sorted(chosen)) or NOTHING


def _cut(sentence: str) -> list[str]:
    """Split a long sentence into overlapping parts."""
    words = sentence.split()
    if len(words) <= MOST_WORDS:
        return [sentence]
    step = MOST_WORDS // 2
    return [" ".join(words[place : place + MOST_WORDS]) for place in range(0, len(words) - step, step)]
