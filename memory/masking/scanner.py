"""Secrets are left out of what is recorded (seed 004, "Automatic Interaction Recording Process"; the setting
`capture_settings.sensitive_data_masking`).

They are found by their form, by what is said of them and by where they stand. What is one in one place is one in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from memory.masking import named_secrets, placed_secrets, secret_values, token_shapes, told_secrets
from memory.masking.secret_finding import Sieve, Span
from memory.masking.seen_text import MASKED, PLACE, Seen, seen

__all__ = ["PLACE", "holds_token", "masked", "masked_together", "taken_out"]

_SIEVE = Sieve((*token_shapes.FINDERS, *placed_secrets.FINDERS, *told_secrets.FINDERS, *named_secrets.FINDERS))
_PASSES = 5  # what is masked may show another: nothing is found in what these leave
_SHORT = 8  # characters: a shorter secret is found again as a word of its own alone, and a shorter word is not
_AGAIN = 200  # secrets of one text that are looked for elsewhere in it


def masked(text: str) -> tuple[str, int]:
    """The text with `[masked: KIND]` for each secret, and how many there were."""
    [found], count = masked_together([text])
    return found, count


def masked_together(texts: Sequence[str]) -> tuple[list[str], int]:
    """Texts of one talk: what is found to be a secret in one of them is masked in all."""
    found = _found_together(texts)
    return [_replaced(text, spans) for text, spans in zip(texts, found, strict=True)], sum(map(len, found))


def holds_token(text: str) -> bool:
    """Whether something in it would be masked: it is no name to be kept in clear."""
    return masked(text)[1] > 0


def taken_out(texts: Sequence[str]) -> list[tuple[str, str]]:
    """What stands in the place of each secret of these texts, and the secret; what stood there before, as itself."""
    told = []
    for text, spans in zip(texts, _found_together(texts), strict=True):
        places = [(begin, _place(kind), text[begin:end]) for begin, end, kind in spans]
        places += [(found.start(), found[0], found[0]) for found in PLACE.finditer(text)]
        told += [(place, secret) for _, place, secret in sorted(places)]
    return told


def _replaced(text: str, spans: Iterable[Span]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end, kind in spans:
        parts += [text[at:begin], _place(kind)]
        at = end
    return "".join([*parts, text[at:]])


def _place(kind: str) -> str:
    return f"[masked: {kind}]"


# --- where they are


def _found_together(texts: Sequence[str]) -> list[list[Span]]:
    """Until nothing more is found, so that to mask what is masked changes nothing."""
    views = [seen(text) for text in texts]
    found: list[list[Span]] = [[] for _ in texts]
    for _ in range(_PASSES):
        fresh = _found_once(views)
        if not any(fresh):
            break
        for view, spans, all_spans in zip(views, fresh, found, strict=True):
            all_spans += ((*view.given(begin, end), kind) for begin, end, kind in spans)
        views = [view.without(spans) for view, spans in zip(views, fresh, strict=True)]
    return [sorted(spans) for spans in found]


def _found_once(views: Sequence[Seen]) -> list[list[Span]]:
    found = [list(_SIEVE.spans(view)) for view in views]
    secrets: dict[str, str] = {}
    for view, spans in zip(views, found, strict=True):
        secrets |= {
            view.text[begin:end]: kind for begin, end, kind in spans if _is_found_again(view.text[begin:end], kind)
        }
    known = dict(list(secrets.items())[:_AGAIN])
    return [
        [part for span in _apart([*spans, *_again(view.text, known)]) for part in _whole(view.text, span)]
        for view, spans in zip(views, found, strict=True)
    ]


def _is_found_again(secret: str, kind: str) -> bool:
    """Not a word like another, which may be said of something else."""
    if secret.isalpha():
        return len(secret) >= _SHORT and kind != "address credentials"
    return len(secret) >= (_SHORT if " " in secret else 4) and (" " in secret or secret_values.is_opaque(secret))


def _again(text: str, secrets: dict[str, str]) -> Iterator[Span]:
    for secret, kind in secrets.items():
        begin = text.find(secret)
        while begin >= 0:
            end = begin + len(secret)
            if (len(secret) >= _SHORT and not secret.isalpha()) or _is_apart(text, begin, end):
                yield begin, end, kind
            begin = text.find(secret, end)


def _is_apart(text: str, begin: int, end: int) -> bool:
    around = text[max(0, begin - 1) : begin] + text[end : end + 1]
    return not any(letter.isalnum() or letter == "_" for letter in around)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Of spans that overlap one, under the name of the first."""
    apart: list[Span] = []
    for begin, end, kind in sorted(spans):
        if apart and begin < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        else:
            apart.append((begin, end, kind))
    return apart


def _whole(text: str, span: Span) -> Iterator[Span]:
    """The parts of it between what is masked already, none of which ends within a letter that is escaped."""
    begin, end, kind = span
    for part in re.finditer(f"[^{MASKED}]+", text[begin:end]):
        at, after = begin + part.start(), begin + part.end()
        slashes = len(part[0]) - len(part[0].rstrip("\\"))
        after -= slashes % 2 if text[after : after + 1] in tuple('"\\/bfnrtu') else 0
        if at < after:
            yield at, after, kind
