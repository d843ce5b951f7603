"""What a person would not see in a file, or see as something else, written so that it is seen, and read again.

Control characters command a terminal, and those that turn the direction of writing (U+202E) show a text as it is not.
They stand in a file as `\\u{202E}`; backslashes that a text has before one, or before what looks so, are doubled.
"""

from __future__ import annotations

import re

_UNSEEN = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_TO_SHOW = re.compile(rf"(?<!\\)(\\*+)(?:({_UNSEEN}|\r(?!\n))|u\{{([0-9A-F]{{1,4}})\}})")
_SHOWN = re.compile(r"(?<!\\)(\\++)u\{([0-9A-F]{1,4})\}")
_IS_UNSEEN = re.compile(rf"{_UNSEEN}|\r")


def visible(text: str) -> str:
    """`restored` gives it back as it was."""
    return _TO_SHOW.sub(_shown, text)


def restored(text: str) -> str:
    return _SHOWN.sub(_as_it_was, text)


def _shown(found: re.Match[str]) -> str:
    before, letter, code = found.groups()
    if letter:
        return f"{before * 2}\\u{{{ord(letter):X}}}"
    return f"{before}{found[0]}" if _is_ours(code) else found[0]


def _as_it_was(found: re.Match[str]) -> str:
    before, code = found.groups()
    if not _is_ours(code):
        return found[0]
    half, is_letter = divmod(len(before), 2)
    return "\\" * half + (chr(int(code, 16)) if is_letter else f"u{{{code}}}")


def _is_ours(code: str) -> bool:
    """Whether it is how one of those characters is written."""
    letter = chr(int(code, 16))
    return f"{ord(letter):X}" == code and _IS_UNSEEN.fullmatch(letter) is not None
