"""Mail addresses that decide something: whom a letter goes to, and who is said in it to ask."""

from __future__ import annotations

import re

# Read as it is shown, by people and by every mail server: quoted names (in which a link can stand), control characters,
# routes and letters that look like others are what Django's own check lets pass. (A domain in other letters has an xn--
# form.)
_PLAIN = re.compile(r"[A-Za-z0-9_+'-]+(\.[A-Za-z0-9_+'-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_WITHIN = re.compile(r"[^\s<>()\[\],;:\"/=|]+@[\w.-]+")

ADVICE = "must be a plain e-mail address: letters, digits and . _ + - ' before the @, a domain after it"


def is_plain(address: str) -> bool:
    return _PLAIN.fullmatch(address) is not None


def named_in(text: str) -> list[str]:
    """The addresses that somebody named in free words: `Jo <jo@acme.example>`."""
    found = _WITHIN.findall(text)
    return [text, *found, *(each.lstrip("'") for each in found)]


def askers(label: str, asked_by: str) -> tuple[str, ...]:
    """Whose wish a removal is: who asked, and whoever they said in free words that they ask for."""
    return (label, *named_in(asked_by))
