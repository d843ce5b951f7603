"""A text as one sees it, for what looks for secrets: odd blanks, colons, quotes and wide letters are the plain ones,
what cannot be seen is gone, and what is masked is one sign that nothing reaches across.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PLACE = re.compile(r"\[masked: [^\[\]\n]{1,60}\]")
MASKED = "\ufffc"

_PLAIN = {
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full width
    **dict.fromkeys(
        "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
    ),
    **dict.fromkeys("\x85\u2028\u2029", "\n"),
    **dict.fromkeys("“”„‟«»″「」『』", '"'),
    **dict.fromkeys("‘’‚‛′´", "'"),
    **dict.fromkeys("∶꞉˸﹕", ":"),
    **dict.fromkeys("‐‑", "-"),
    "﹦": "=",
    "ſ": "s",
    "\u212a": "k",
    "ı": "i",
    "İ": "i",  # the one letter that is two in lower case
    MASKED: "\ufffd",
}
_ODD = re.compile(f"[{''.join(map(re.escape, _PLAIN))}]")
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
_GONE = re.compile(rf"{PLACE.pattern}|[{_UNSEEN}]+")


@dataclass(frozen=True, slots=True, repr=False)
class Seen:
    """`folded` is `text` in lower case, letter for letter; `where` is where each was, None where it was there."""

    text: str
    folded: str
    where: Sequence[int] | None = None

    def without(self, spans: Iterable[tuple[int, int, str]]) -> Seen:
        """The same with these masked."""
        return self._changed((begin, end, MASKED) for begin, end, _ in spans)

    def given(self, begin: int, end: int) -> tuple[int, int]:
        """Where it stands in the text that was given."""
        return (begin, end) if self.where is None else (self.where[begin], self.where[end - 1] + 1)

    def _changed(self, changes: Iterable[tuple[int, int, str]]) -> Seen:
        where = range(len(self.text)) if self.where is None else self.where
        text, places, at = [], [], 0
        for begin, end, sign in changes:
            text += [self.text[at:begin], sign]
            places += [*where[at:begin], *where[begin : begin + len(sign)]]
            at = end
        return _of("".join([*text, self.text[at:]]), [*places, *where[at:]]) if text else self


def seen(text: str) -> Seen:
    plain = text if text.isascii() else _ODD.sub(lambda found: _PLAIN[found[0]], text)
    if plain.isascii() and "[masked: " not in plain:
        return _of(plain)
    gone = ((found.start(), found.end(), MASKED if found[0][0] == "[" else "") for found in _GONE.finditer(plain))
    return _of(plain)._changed(gone)


def _of(text: str, where: Sequence[int] | None = None) -> Seen:
    return Seen(text, text.lower(), where)
