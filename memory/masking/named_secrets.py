"""Secrets that are one by what is said of them: "my password is …", `API_KEY=…`, "use … as the password", in the words
of many languages. What is said of an ordinary word, a type or a variable is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from memory.masking import secret_values as values
from memory.masking.secret_finding import Finder, Span
from memory.masking.secret_names import SIGNS, SPACED, STRONG, UNSPACED, WEAK
from memory.masking.seen_text import Seen
from memory.masking.told_secrets import around, word

# Patterns look at a text in lower case. Each name is a branch that begins with a letter, so that a search goes from one
# such letter to the next.
_NAME = re.compile(f"{STRONG}|{WEAK}")
_IS_STRONG = re.compile(STRONG)
_ENGLISH = re.compile(rf"pass(?:w(?:or)?d|phrase|code)|pwd?|_pass|seed|recovery|mnemonic|{WEAK}")
_IS_UNSPACED = frozenset(UNSPACED.split("|"))

_GAP = r"[ \t]{0,4}"
_OF = (
    r"(?:[ \t](?:mea|moje|moja|mia|minha|mía|nuestra|mein|meins))?"
    r"(?:[ \t]?\([^()\n]{1,40}\)|[ \t]\[[^\[\]\n]{1,40}\])?"
    r"(?:,?[ \t](?:i|we|you|he|she|they|that|which)(?=[ \t])(?:[ \t](?!is|was)[\w'-]{1,20}){0,5})?"
    r"(?:[ \t](?:for|to|of|on|at|in|für|zu|de|del|da|do|von|pour)(?:[ \t][\w.@'-]{1,40}){1,4})?"
)
_DONE = r"(?:set|changed|reset|updated|rotated|switched)"
_IS = (
    r"(?:(?:is|was|are|will be|has been|had been|lautet|c'est|"
    r"(?P<abroad>should be|ist|war|este|es|est|era|é|è|jest|je|är|er|это))"
    r"(?:[ \t](?:now|still|just|currently|simply|literally|jetzt|actually))?"
    rf"(?:[ \t]{_DONE}(?:[ \t]back)?[ \t](?:to|as))?|{_DONE}[ \t](?:back[ \t])?(?:to|as)"
    r"|(?P<to>to|into|auf|en|à|para|(?P<as>as)))"
    r":?(?:[ \t]{1,4}|[ \t]{0,4}\n[ \t]{0,20})"
)
_TAIL = re.compile(
    rf"(?P<rest>[a-z0-9_]{{0,20}})(?P<close>\\{{0,3}}['\"`]\]?|[*_]{{1,2}}|\])?{_OF}{_GAP}"
    rf"(?:(?P<sign>:=|=>|={{1,3}}|!={{1,2}}|:{{1,2}})(?P<gap>{_GAP})(?:\*\*|__)?{_GAP}"
    rf"|(?P<dash>[–—→]|->|(?<=[ \t])-{{1,2}}(?=[ \t])){_GAP}"
    rf"|\?[ \t\n]{{1,4}}(?:it's|it is|that's|try)[ \t]{{1,4}}|(?P<asked>\?[ \t\n]{{1,4}})"
    rf"|'s[ \t]{{1,4}}|(?<=hasło )to[ \t]|(?<=salasana )on[ \t]|(?<=[ \t]){_IS})"
)
_UNSPACED_TAIL = re.compile(
    rf"(?P<rest>)(?P<close>\\{{0,3}}['\"`]\]?|\*\*)?{_GAP}"
    rf"(?:(?P<sign>[:=])(?P<gap>)|(?P<dash>-)|(?P<to>(?!)(?P<as>))|(?P<abroad>(?!))|(?P<asked>(?!))"
    rf"|(?:是|为|為|は|を|가|이|은|는|है|هي|هو|คือ)[:]?|(?=[ \t])){_GAP}"
)
_CHANGING = re.compile(
    r"(?<![^\W_])(?:set|chang|reset|updat|rotat|switch|mak|made|turn|ändern|ändere|setz|cambi|mud)\w{0,6}"
    r"(?:[ \t][\w'.-]{1,30}){0,5}[ \t'\"`]{1,2}[\w.-]{0,30}\Z"
)
_PLAIN_REST = re.compile(
    r"(?:s|es)?(?:_?\d{1,2}|_(?:prod|production|live|staging|test|dev|ci|new|old|confirm|value))?_{0,2}\Z"
)
_COUNTED = re.compile(r"(?:max|min|num|count|total|limit|budget|per|n)[_ -]?(?:[a-z]{1,12}[_ -])?\Z")
_QUOTED = re.compile(
    r"(?:[bru@f$]{1,2}(?=['\"]))?(?P<quote>\\{0,3}(?:\"\"\"|'''|['\"`]))"
    r"(?P<value>(?:(?!(?P=quote))(?:\\[^\n]|[^\\\n])){1,200}?)(?P=quote)",
    re.IGNORECASE,
)
_BARE = re.compile(r"[^\s'\"`\ufffc]{3,1000}")
_BARE_ENDS = re.compile(
    r"[)\]}],|,[\w.]+[:=]|&(?:[lr]dquo|[lr]squo|quot|gt|lt|#x?\w{1,6});|"
    r"[,;)\]}]?(?:&(?:amp;)?[\w.-]+=|;[\w ]+=|\\[nrt\"]|</|<br|[，。；、）」])|,\"|\|"
)
_ASCII = re.compile(r"[!#-&(-_a-~]{4,200}")
_NEXT_LINE = re.compile(r"[ \t]{0,8}(?:(?:\n|\\n|\\r\\n)[ \t>]{0,20}){1,2}(?:```\w{0,20}\n|(?:-|\*|\d\.)[ \t])?")
_LINE = re.compile(r"[\"`*]{0,3}[^\n\\\"]{1,200}")
_PHRASE = re.compile(r"[^\n\r\"`|<>,;:()=\\\ufffc\[\]{}]{3,260}")
_PHRASE_ENDS = re.compile(r"[.!?](?=\s|$)|[ \t](?:[-–—/&]|and|but|und|y|et)(?=\s)")
_GOES_ON = re.compile(
    r"[ \t]?(?:$|[.,;!?)\n\r\]}|<*\\/–—]|-[ \t]|\((?!\))|(?:and|but|for|on|so|now|please|if|when|until|because|btw|und|"
    r"for|from|y|et)(?!\w)|[\w.-]{1,20}[ \t]?[:=])"
)
_TRAILING = ".,;:!?)]}>*"
_LABEL = re.compile(r"(?:\A|\n|\\n)[ \t>*#•-]{0,12}(?:[\w'.-]{1,20}[ \t]){0,3}[\w-]{0,20}\Z")

_BESIDE = re.compile(
    r"[ \t]{1,3}(?:(?P<secret>[^\s'\"`]{4,400})|(?P<q>['\"`])(?P<quoted>[^\s'\"`]{4,100})(?P=q)(?=[ \t.,;!?)\n]|$))"
)
_LONG = 16  # characters: so many, with letters and digits, are no word behind "token" ...
_FAIRLY_LONG, _TWO_WORDS = 10, re.compile(r"[ _-](?:key|secret)\Z")  # ... nor so many behind "client secret"
_WHOSE = r"(?:my|the|our|your|his|her|their|a|its|das|mein)"
_AS = re.compile(
    rf"[ \t](?:as|for|als)[ \t](?:{_WHOSE}[ \t])?(?:[\w-]{{1,20}}[ \t]){{0,2}}(?:{SPACED}|{WEAK})"
    r"(?=[ \t]{0,2}(?:$|[.,;!?)\n\\\"]|(?:for|on|to|in|at|and|of|from|everywhere)(?!\w)))"
)
_USING = re.compile(
    r"(?<!\w)(?:us(?:e|ed|ing)|pick(?:ed)?|cho{1,2}se|set|with|enter(?:ed)?|typed?|took|take|put|saved?|nimm|verwende)"
    r"[ \t:]{1,3}(?P<secret>\S{3,200}(?:[ \t][^\s,.;:]{1,60}){0,7})\Z"
)


class _Found(NamedTuple):
    """A name, and what stands behind it."""

    seen: Seen
    name: re.Match[str]
    tail: re.Match[str]

    @property
    def is_strong(self) -> bool:
        return _IS_STRONG.match(self.seen.folded, self.name.start()) is not None

    @property
    def is_unspaced(self) -> bool:
        return self.name[0] in _IS_UNSPACED

    @property
    def is_plain(self) -> bool:
        """The name says no more than that: not `password_field`, or "tokens"."""
        rest = self.tail["rest"]
        return _PLAIN_REST.match(rest) is not None and (
            self.is_strong or rest != "s" or self.name[0].endswith(("credential", "code"))
        )

    @property
    def is_told(self) -> bool:
        """A sentence says it."""
        return not self.tail["sign"]

    @property
    def is_abroad(self) -> bool:
        """A sentence says it in a language whose words for what is said of secrets are not known here."""
        return self.is_told and (
            bool(self.tail["abroad"] or self.tail["asked"] or self.tail["as"]) or not _ENGLISH.match(self.name[0])
        )

    @property
    def kind(self) -> str:
        return "password" if self.is_strong else " ".join(re.split(r"[ _.-]", self.name[0].lstrip("_")))


def _named(seen: Seen) -> Iterator[Span]:
    at = 0
    while (name := _NAME.search(seen.folded, at)) is not None:
        at = name.end()
        is_strong = _IS_STRONG.match(seen.folded, name.start()) is not None
        yield from around(seen, name.start(), at, is_strong=is_strong)
        tail = (_UNSPACED_TAIL if name[0] in _IS_UNSPACED else _TAIL).match(seen.folded, at)
        if tail is None:
            yield from _beside(seen, name)
            continue
        if tail["to"] and not _CHANGING.search(seen.folded, max(0, name.start() - 80), name.start()):
            continue
        found = _Found(seen, name, tail)
        if not found.is_strong and not found.is_plain:
            continue
        place = _value(found)
        if place is not None:
            yield *place, found.kind
            at = max(at, place[1])


def _value(found: _Found) -> tuple[int, int] | None:
    at, text = found.tail.end(), found.seen.text
    next_line = _NEXT_LINE.match(text, at)
    if next_line is not None and not found.tail["dash"]:
        return _on_its_line(found, next_line.end())
    quoted = _QUOTED.match(text, at)
    if quoted is not None:
        return quoted.span("value") if _is_quoted_secret(found, quoted["value"]) else None
    return _phrase(found, at) or _bare(found, at)


def _is_quoted_secret(found: _Found, value: str) -> bool:
    if values.is_none(value) or values.speaks_of_one(value) or values.is_between_quotes(value):
        return False
    if found.is_strong and found.is_plain:
        return not values.is_name(value) or not found.tail["sign"]
    return " " not in value and _is_weak_secret(found, value) and not values.is_name(value)


def _on_its_line(found: _Found, at: int) -> tuple[int, int] | None:
    """A value that is all of the next line."""
    line = _LINE.match(found.seen.text, at)
    value = line[0].strip().strip("`*\"',") if line else ""
    if len(value) < 3 or not found.is_plain or values.is_none(value) or values.is_code(value, value):
        return None
    begin = at + found.seen.text[at : at + 220].find(value)
    if " " in value or "\t" in value:
        is_one = found.is_strong and values.is_phrase(value, is_told=False, may_have_small=False)
    elif found.is_strong:
        is_one = values.is_opaque(value) or (value.isalpha() and _is_label(found))
    else:
        is_one = _is_weak_secret(found, value) and (values.has_both(value) or value.isdigit())
    return (begin, begin + len(value)) if is_one and ":" not in value[-1:] else None


def _is_label(found: _Found) -> bool:
    return _LABEL.search(found.seen.folded, max(0, found.name.start() - 60), found.name.start()) is not None


def _phrase(found: _Found, at: int) -> tuple[int, int] | None:
    """A value of some words, to the end of what is said."""
    is_spaced = found.tail["sign"] != "=" or found.tail["gap"] != ""
    if not (found.is_strong and found.is_plain and is_spaced) or found.is_abroad or found.tail["dash"]:
        return None
    words = _PHRASE.match(found.seen.text, at)
    if words is None:
        return None
    said = words[0]
    after = found.seen.text[words.end() : words.end() + 1]
    if after == "(" and not said.endswith(" "):
        return None  # a call
    if after and after in "=:":
        said = said.rstrip().rpartition(" ")[0]  # the next thing's name
    end = _PHRASE_ENDS.search(said)
    said = (said[: end.start()] if end else said).rstrip()
    may_have_small = not found.is_told and _is_label(found)
    is_seed = found.name[0].startswith(("seed", "recovery", "mnemonic")) and values.is_seed(said)
    if not is_seed and not values.is_phrase(said, is_told=found.is_told, may_have_small=may_have_small):
        return None
    return at, at + len(said.rstrip(_TRAILING))


def _bare(found: _Found, at: int) -> tuple[int, int] | None:
    bare = (_ASCII if found.is_unspaced and found.is_told else _BARE).match(found.seen.text, at)
    if bare is None:
        return None
    value = (_BARE_ENDS.split(bare[0], maxsplit=1)[0] if _BARE_ENDS.search(bare[0]) else bare[0]).rstrip(_TRAILING)
    if len(value) < 3 or values.is_none(value) or not _is_bare_secret(found, bare[0], value, at + len(value)):
        return None
    return at, at + len(value) + _marks(found, value, bare[0][len(value) :])


def _marks(found: _Found, value: str, behind: str) -> int:
    """How many of the ! and ? right behind it are its own, rather than a sentence's."""
    own = "!?" if found.tail["sign"] and values.is_opaque(value) else "!" if values.is_opaque(value) else ""
    return len(behind) - len(behind.lstrip(own)) if own else 0


def _is_bare_secret(found: _Found, bare: str, value: str, end: int) -> bool:
    if (found.tail["sign"] or not found.is_strong) and values.is_code(bare, value):
        return False
    if not found.is_strong:
        return _is_weak_secret(found, value) and (not found.tail["dash"] or _is_random(value))
    is_in_quotes = (found.tail["close"] or "")[-1:] in ("'", '"')  # what is none itself is code
    if found.tail["dash"] or found.is_abroad or is_in_quotes or not found.is_plain:
        return values.is_opaque(value) and not values.is_name(value)
    if found.tail["sign"] == "=" and found.tail["gap"] and values.is_snake(value):
        return False  # a variable
    if found.name[0].startswith("pw") and value[0] in "/~.":
        return False  # where one is
    is_shell = found.tail["sign"] == "=" and found.tail["gap"] == "" and found.name[0].isalpha()
    return (
        values.is_opaque(value)
        or is_shell
        or (
            _GOES_ON.match(found.seen.text, end) is not None
            and not (found.is_told and values.is_spoken(value) and not _is_over(found.seen.text, end))
        )
    )


def _is_over(text: str, end: int) -> bool:
    return text[end : end + 1] in ("", ".", "!", "\n")


def _is_weak_secret(found: _Found, value: str) -> bool:
    name = found.name[0]
    if name.startswith(("pin", "otp")) or name.endswith("code"):
        digits = value.replace("-", "")
        return (digits.isdigit() and 4 <= len(digits) <= 16) or ("-" in value and values.has_both(value))
    if name == "pass" and not values.has_both(value):
        return False
    if value.isdigit():
        before = found.seen.folded[max(0, found.name.start() - 20) : found.name.start()]
        return len(value) >= 6 and _COUNTED.search(before) is None
    return len(value) >= 6 and values.is_opaque(value) and not values.is_constant(value)


def _is_random(value: str) -> bool:
    return len(value) >= _LONG and values.has_both(value) and value.isalnum()


def _beside(seen: Seen, name: re.Match[str]) -> Iterator[Span]:
    """A password behind its name, with nothing between them."""
    found = _BESIDE.match(seen.text, name.end())
    if found is None:
        return
    if not _IS_STRONG.match(seen.folded, name.start()):
        is_plain = _TWO_WORDS.search(name[0]) is not None
        if len(found["secret"] or "") >= (_FAIRLY_LONG if is_plain else _LONG):
            yield from word(found["secret"], found.start("secret"))
    elif found["secret"]:
        yield from word(found["secret"], found.start("secret"))
    elif not (values.is_none(found["quoted"]) or values.is_name(found["quoted"]) or " " in found["quoted"]):
        yield *found.span("quoted"), "password"


def _used_as(seen: Seen) -> Iterator[Span]:
    """ "Use … as the password"."""
    for found in _AS.finditer(seen.folded):
        used = _USING.search(seen.folded, max(0, found.start() - 300), found.start())
        if used is None:
            continue
        said = seen.text[used.start("secret") : used.end("secret")]
        value = said.strip("\\\"'`")
        begin = used.start("secret") + said.find(value)
        if " " in value:
            is_quoted = said[0] in "\\\"'`" and not values.speaks_of_one(value)
            is_one = is_quoted or values.is_phrase(value, is_told=True, may_have_small=False)
        else:
            is_one = len(value) >= 3 and not values.is_none(value) and not values.is_code(value, value)
        if is_one:
            yield begin, begin + len(value), "password"


FINDERS = (Finder(SIGNS, lambda seen: chain(_named(seen), _used_as(seen))),)
