"""Secrets that go together with something else that is told: a login's password, the one before a change and the one
after it, one of several in a row or a list, "that's my password" behind it, the key for something.

Where they go with a name of `secret_names`, `named_secrets` has found the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory.masking import secret_values as values
from memory.masking.secret_finding import Finder, Span
from memory.masking.seen_text import Seen

_AFTER = ".,;:)]}>'\"`*"
_WORD = r"[^\s'\"`\ufffc]"


def _one(seen: Seen, begin: int, end: int, *, least: int = 4, is_sure: bool = False) -> Iterator[Span]:
    """What may be one there, unless it is a word, a type or code. Where it is not sure that one is told, it has
    letters and digits, too."""
    said = seen.text[begin:end]
    begin += len(said) - len(said.lstrip("([{<'\"`*"))
    secret = said.strip("([{<'\"`*" + _AFTER)
    bare = secret.rstrip("!?")
    if len(bare) < least or values.is_none(bare) or values.is_code(bare, bare):
        return
    if values.is_opaque(bare) if is_sure else values.has_both(bare) and len(bare) >= 6:
        yield begin, begin + len(secret), "password"


# --- logins

_PASS = re.compile(
    r"pass(?<![\w-]pass)(?:\\{0,3}['\"])?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}(?:\\{0,3}['\"])?"
    r"(?P<secret>[^\s'\"`\\\ufffc]{3,200})"
)
_PASS_NUMBERED = re.compile(r"[a-z_]*pass[a-z_]*_?\d{0,2}\Z")  # of a compiler, a test
_WHO = re.compile(r"(?<![^\W_])(?:user(?:name)?|login|account|e-?mail|id)(?!\w)")
_LOGIN = re.compile(r"user[ \t]?[/:][ \t]?pass(?:word)?(?!\w)|creds?(?!\w)|credentials|login(?!\w)")
_BOTH = re.compile(
    r"(?:(?:[ \t]?[:=-]|[ \t]are)[ \t]{0,2}[\w.@+-]{1,60}[ \t]?[:/][ \t]?|[ \t][\w.@+-]{1,60}[ \t]/[ \t])"
    r"(?P<secret>[^\s'\"`/\ufffc]{4,100})"
)
_BOTH_TOLD = re.compile(  # with less around them
    r"[ \t](?:(?:is|was)[ \t]:?)?(?![\w.]{0,60}://)[a-z_][\w.@+-]{0,60}[:/](?P<secret>[^\s'\"`/:\ufffc]{6,100})(?![/:])"
)
_PASS_IS = re.compile(
    r"(?<!\w)pass[ \t]{1,3}(?P<of>(?:for|to|of|on|at)[ \t](?:[\w.@'-]{1,40}[ \t]){1,4}?)?(?:is|was)[ \t:]{1,3}"
    rf"(?P<secret>{_WORD}{{4,100}})"
)


def _logins(seen: Seen) -> Iterator[Span]:
    """ "user: bob, pass: …", "the pass is …", "login: bob / …"."""
    for found in _PASS_IS.finditer(seen.folded):
        yield from _one(seen, *found.span("secret"), is_sure=not found["of"])
    for found in _PASS.finditer(seen.folded):
        begin, end = found.span("secret")
        end = begin + len(re.split(r"[,;&}](?=[\w.]+[:=])", found["secret"], maxsplit=1)[0])
        is_login = _WHO.search(seen.folded, max(0, found.start() - 90), found.start()) is not None
        if is_login or not _PASS_NUMBERED.match(found["secret"]):
            yield from _one(seen, begin, end, is_sure=is_login, least=3)
    for head in _LOGIN.finditer(seen.folded):
        both = _BOTH.match(seen.folded, head.end())
        if both is not None:
            yield from _one(seen, *both.span("secret"), is_sure=True)
        elif (told := _BOTH_TOLD.match(seen.folded, head.end())) is not None:
            yield from _one(seen, *told.span("secret"))


# --- one after another

_FROM_TO = re.compile(
    r"(?![\w-])(?:[ \t](?:for|of|on)(?:[ \t][\w.@'-]{1,40}){1,4}?)?[ \t]from[ \t]{1,3}"
    rf"(?P<before>{_WORD}{{3,100}})[ \t]{{1,3}}(?:in)?to[ \t]{{1,3}}(?P<after>{_WORD}{{3,100}})"
)
_ARROW = re.compile(
    rf"(?![\w-])[ \t]{{0,3}}[:=]?[ \t]{{0,3}}(?P<before>{_WORD}{{3,100}})[ \t]{{1,3}}(?:->|=>|→)[ \t]{{1,3}}"
    rf"(?P<after>{_WORD}{{3,100}})"
)
_SEVERAL = re.compile(
    r"s(?!\w)(?:[ \t](?:are|were)|[ \t]?:)[ \t]{1,3}"
    rf"(?P<all>{_WORD}{{3,100}}(?:(?:,?[ \t](?:and|or)[ \t]|,[ \t]|[ \t]/[ \t]){_WORD}{{3,100}}){{1,20}})"
)
_PART = re.compile(rf"{_WORD}{{3,100}}")
_LIST = re.compile(r"(?:s|es)?(?![\w-])[^\n:]{0,40}:[ \t]{0,4}\n")
_ITEM = re.compile(
    r"[ \t>]{0,12}(?:[-*•+]|\d{1,3}[.)])[ \t]{1,4}(?:(?P<label>[^\n:=]{1,40})[:=][ \t]{1,4})?"
    rf"(?P<secret>{_WORD}{{4,100}})[ \t]{{0,4}}(?:\n|\Z)"
)
_ITEMS = 100  # of a list
_MY = r"(?:my|the|our|your|his|her|their|a|its|das|mein)"
_IS_MINE = (
    rf"[ \t](?:is|was|will be)[ \t]{_MY}"
    rf"|[ \t]?[(,–—-][ \t]?(?:that|this|it|which)(?:'s|[ \t](?:is|was))[ \t]{_MY}"
    r"|[ \t](?:ist|war)[ \t](?:mein|das|unser|dein|ihr|sein)|[ \t](?:es|era)[ \t](?:mi|la|nuestra|tu|su)"
    r"|[ \t](?:est|était)[ \t](?:mon|le|notre|ton)|[ \t](?:è|era)[ \t]la[ \t](?:mia|nostra|tua|sua)"
    r"|[ \t](?:é|era)[ \t]a[ \t](?:minha|nossa|sua)|[ \t]is[ \t](?:mijn|het|ons)"
)
_REVERSED = re.compile(rf"(?:{_IS_MINE})[ \t](?:[\w-]{{1,20}}[ \t]){{0,2}}\Z")
_BEFORE = 80  # characters, in which "… is my old work" has room
_LAST = re.compile(r"\"[^\"\n]{3,100}\"\Z|'[^'\n]{3,100}'\Z|`[^`\n]{3,100}`\Z|(?<!\S)\S{3,200}\Z")


def around(seen: Seen, begin: int, end: int, *, is_strong: bool) -> Iterator[Span]:
    """What is told of a name that stands there, beside what the name is given: "… is my NAME"; and of what is one in
    itself "NAME from … to …", "NAME: … -> …", "NAMEs are … and …", "NAMEs:" above a list."""
    yield from _reversed(seen, begin)
    if is_strong:
        yield from _changed(seen, end)
        yield from _several(seen, end)


def _changed(seen: Seen, at: int) -> Iterator[Span]:
    for pattern in (_FROM_TO, _ARROW):
        found = pattern.match(seen.folded, at)
        if found is not None:
            yield from _one(seen, *found.span("before"), is_sure=True)
            yield from _one(seen, *found.span("after"), is_sure=True)


def _several(seen: Seen, at: int) -> Iterator[Span]:
    told = _SEVERAL.match(seen.folded, at)
    if told is not None:
        for part in _PART.finditer(seen.text, *told.span("all")):
            yield from _one(seen, *part.span(), is_sure=True)
    head = _LIST.match(seen.folded, at)
    item = _ITEM.match(seen.text, head.end()) if head is not None else None
    for _ in range(_ITEMS):
        if item is None:
            break
        yield from _one(seen, *item.span("secret"), is_sure=True)
        item = _ITEM.match(seen.text, item.end())


def _reversed(seen: Seen, at: int) -> Iterator[Span]:
    found = _REVERSED.search(seen.folded, max(0, at - _BEFORE), at)
    if found is None:
        return
    last = _LAST.search(seen.text, max(0, found.start() - 200), found.start())
    if last is not None and last[0][0] in "\"'`" and " " in last[0]:
        if values.is_phrase(last[0][1:-1], is_told=False, may_have_small=False):
            yield last.start() + 1, last.end() - 1, "password"
    elif last is not None:
        yield from word(last[0], last.start())


def word(said: str, at: int) -> Iterator[Span]:
    """What a sentence has where a password may be: one that is no word."""
    value = said.strip(".,;:!?)]}>*'\"`([{<")
    if len(value) >= 4 and not values.is_none(value) and values.has_both(value) and not values.is_name(value):
        yield at + said.find(value), at + said.find(value) + len(value), "password"


# --- a key for something

_KEY_FOR = re.compile(
    r"(?<![\w-])key[ \t](?:for|to|of)[ \t](?:[\w.@'-]{1,40}[ \t]){1,4}?(?:is|was)[ \t:]{1,3}"
    r"(?P<secret>[\w-]{16,200})(?![\w.:/(\[-])"
)
_OTHER_KEY = re.compile(r"(?:primary|foreign|cache|sort|public|partition|row|hash|index|object|lookup|map)[ _-]\Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_MIXED = re.compile(r"(?:[a-z]+\d+){3}|(?:\d+[a-z]+){3}", re.IGNORECASE)


def _keys(seen: Seen) -> Iterator[Span]:
    """ "The key for openweather is …"."""
    for found in _KEY_FOR.finditer(seen.folded):
        secret = found["secret"]
        is_other = _OTHER_KEY.search(seen.folded, max(0, found.start() - 12), found.start())
        if not is_other and _MIXED.search(secret) and not _UUID.match(secret) and not values.is_none(secret):
            yield *found.span("secret"), "key"


FINDERS = (
    Finder(("pass", "cred", "login"), _logins),
    Finder(("key for", "key to", "key of", "key\t"), _keys),
)
