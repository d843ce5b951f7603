"""Mask secrets in text.

The module `tokens` finds secrets by their form. The module `pairs` finds secrets by the name next to them. If a secret
is found in one place, it is masked in all places.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from memory.masking import pairs, tokens
from memory.masking.pairs import HIDDEN, Span

PLACE = re.compile(r"\[masked: [^\[\]\n]{1,60}\]")
_PASSES = 5  # masking one secret can reveal another secret
_SHORT = 8  # characters: a shorter secret is found again only as a whole word
_AGAIN = 200  # only this many secrets are searched for again in all texts
# "İ" is in this table because it has two characters in lower case.
_PLAIN = dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‘’‚‛", "'") | {"İ": "i"}
_ESCAPED = tuple('"\\/bfnrtu')  # the characters that can follow a backslash in JSON


def masked(text: str) -> tuple[str, int]:
    """Return the text with `[masked: KIND]` for each secret, and the number of secrets."""
    [found], count = masked_together([text])
    return found, count


def masked_together(texts: Sequence[str]) -> tuple[list[str], int]:
    """Mask several texts. A secret that is found in one text is masked in all texts. Masking is repeated until no more
    secrets are found, at most five times. After that, another call normally changes nothing."""
    done, count = list(texts), 0
    for _ in range(_PASSES):
        found = _find(done)
        if not any(found):
            break
        count += sum(map(len, found))
        done = [_replace(text, spans) for text, spans in zip(done, found, strict=True)]
    return done, count


def _replace(text: str, spans: Iterable[Span]) -> str:
    parts, at = [], 0
    for begin, end, kind in spans:
        parts += [text[at:begin], f"[masked: {kind}]"]
        at = end
    return "".join([*parts, text[at:]])


def _find(texts: Iterable[str]) -> list[list[Span]]:
    """Return the secrets of each text, in order and without overlap."""
    views = [_view(text) for text in texts]
    found = [[*tokens.find(view), *pairs.find(view)] for view, _ in views]
    secrets = {
        view[begin:end]: kind
        for (view, _), spans in zip(views, found, strict=True)
        for begin, end, kind in spans
        if _is_distinctive(view[begin:end])
    }
    known = dict(islice(secrets.items(), _AGAIN))
    return [
        [
            (where[begin], where[end - 1] + 1, kind)
            for span in _merge([*spans, *_find_again(view, known)])
            for begin, end, kind in _visible(view, span)
        ]
        for (view, where), spans in zip(views, found, strict=True)
    ]


def _view(text: str) -> tuple[str, Sequence[int]]:
    """Return the text as a reader sees it, without invisible characters. Also return the position in `text` of each
    character that remains. In a place that is already masked, each character becomes HIDDEN."""
    text = PLACE.sub(lambda found: HIDDEN * len(found[0]), text.replace(HIDDEN, "\ufffd"))
    if text.isascii():
        return text, range(len(text))
    where = [at for at, letter in enumerate(text) if _plain(letter)]
    return "".join(_plain(text[at]) for at in where), where


@lru_cache(maxsize=4096)
def _plain(letter: str) -> str:
    """Return the plain form of a character, for example of a wide letter, an unusual space or a typographic quote.
    Returns "" for an invisible character."""
    if unicodedata.category(letter) == "Cf":
        return ""
    plain = _PLAIN.get(letter) or unicodedata.normalize("NFKC", letter)
    return plain if len(plain) == 1 and letter != HIDDEN else letter


def _is_distinctive(secret: str) -> bool:
    """Return whether the same text in another place is probably the same secret. Return False for a short or ordinary
    word."""
    return len(secret) >= (_SHORT if " " in secret else 4) and (" " in secret or pairs.is_opaque(secret))


def _find_again(view: str, secrets: dict[str, str]) -> Iterator[Span]:
    for secret, kind in secrets.items():
        begin = view.find(secret)
        while begin >= 0:
            end = begin + len(secret)
            around = view[max(0, begin - 1) : begin] + view[end : end + 1]
            if len(secret) >= _SHORT or not re.search(r"\w", around):
                yield begin, end, kind
            begin = view.find(secret, end)


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans. A merged span has the kind of the first span."""
    merged: list[Span] = []
    for begin, end, kind in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((begin, end, kind))
    return merged


def _visible(view: str, span: Span) -> Iterator[Span]:
    """Yield the parts of a span that are not hidden. No part ends inside a JSON escape sequence."""
    for part in re.finditer(f"[^{HIDDEN}]+", view[span[0] : span[1]]):
        begin, end = span[0] + part.start(), span[0] + part.end()
        slashes = len(part[0]) - len(part[0].rstrip("\\"))
        end -= slashes % 2 if view[end : end + 1] in _ESCAPED else 0
        if begin < end:
            yield begin, end, span[2]
