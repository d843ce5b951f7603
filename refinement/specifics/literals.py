"""What must be kept to the letter: URLs, e-mail addresses, code-like identifiers, quoted words."""

import re
from collections.abc import Iterator

from refinement.specifics.quantities import SCALES, UNITS
from refinement.specifics.text import Mark, Specific, mask

_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{1,15}://|\bwww\.)[^\s<>\"`\x1f]+", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")
_DIGITS = re.compile(r"\d{3}|\+\d")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d[\d ()/-]{6,20}\d|\(?\d{3}\)?[ -]\d{3}-\d{4})(?!\w)")
_CODE = re.compile(r"`([^`\n]{1,400})`")
_CODELIKE = re.compile(r"[\d_/\\@~#]|\.\w|[a-z][A-Z]|::|-\w(?<!\w-\w)")
_PIECE = re.compile(r"[^\s=,;|()<>{}\[\]\"'`*\x1f]+")
_IDENTIFIERS = (
    r"--[a-z][\w-]*|-[a-z]",  # flags
    r"v?\d+(?:\.\d+){2,}(?:[-+.]?[\w.+-]+)?|v\d[\w.+-]*",  # versions
    r"(?:\d{1,3}\.){3}\d{1,3}(?::\d+|/\d+)?",  # addresses
    r"(?:\.{0,2}|~|[a-z]:)[/\\][\w.@~\\/+:%-]+",  # paths
    r"[\w.@+-]+(?:[/\\][\w.@+-]+)*[/\\][\w@+-]*[\w-]\.[\w]{1,8}",
    r"[\w.@+-]+(?:[/\\][\w.@+-]*){2,}|(?=[^\d_]*[\d_])[\w.@+-]+/[\w.@+-]+",
    r"(?:feature|feat|fix|hotfix|bugfix|release|chore|origin|refs|src|docs|tests?|lib|bin)/[\w.@+-]+",
    r"\.[a-z]\w+(?:\.\w+)*",  # dotfiles
    r"[a-z_][\w-]*(?:\.[a-z_][\w-]*)+(?::\d+)?(?:/[\w./%-]*)?",  # dotted names, hosts
    r"\w+(?:::\w+)+",
    r"\w*[^\W_]_+\w+|__\w+__",  # snake_case
    r"@[\w-]+|#[a-z]\w*",
    r"[a-z]+(?:-[a-z]+)*-?\d[\w.-]*(?::[\w.-]+)?",  # Q3, GPT-4, us-east-1, redis-7:alpine
    r"[0-9a-f]{8}-[0-9a-f-]{13,27}|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}",
    r"[a-z0-9.-]+:\d{2,5}",  # localhost:8000
)
_IDENTIFIER = re.compile("|".join(_IDENTIFIERS), re.IGNORECASE)
_LOWER_CAMEL = re.compile(r"[a-z]+[A-Z]\w*")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?|Ph\.D|[ap]\.m", re.IGNORECASE)
_TWO_SENTENCES = re.compile(r"[\w-]*[a-z]\.[A-Z][a-z]+")
_DIGITS_ONLY = re.compile(r"\d+(?:[/:-]\d+)*|\d{1,2}\.\d{1,2}\.\d{4}|\d{4}\.\d{1,2}\.\d{1,2}")  # a date, a score
_QUANTITY = re.compile(r"[^\W\d]*\d[\d.,]*([^\W\d_]+)", re.IGNORECASE)
_QUOTES = (
    re.compile(r"(?<![\w\"])\"(?=[^\s\"])([^\"\n]{1,400})\"(?!\w)"),
    re.compile(r"(?<![\w'])'(?=[^\s'])((?:[^'\n]|(?<=\w)'(?=\w)){1,200})'(?!\w)"),
)
QUOTED_WORD = re.compile(r"\w+(?:'\w+)*")


def literals_in(plain: str) -> tuple[list[Mark], str]:
    """URLs, addresses and identifiers, and the text with them masked."""
    marks: list[Mark] = []
    for finder in (_urls, _emails, _phones, _codes, _pieces):
        found = list(finder(plain))
        plain = mask(plain, found)
        marks += found
    return marks, plain


def _urls(plain: str) -> Iterator[Mark]:
    if "://" not in plain and "www." not in plain.casefold():
        return
    for match in _URL.finditer(plain):
        text = match[0].rstrip(".,;:!?'*_")
        while text.endswith(")") and text.count("(") < text.count(")"):
            text = text[:-1].rstrip(".,;:!?'*_")
        if text:
            yield _mark("url", match.start(), text, _address(text))


def _address(url: str) -> str:
    """A URL without what people leave out: the scheme, "www.", a closing slash, the host's capitals."""
    bare = re.sub(r"^[a-z][a-z0-9+.-]*://", "", url, flags=re.IGNORECASE)
    bare = re.sub(r"^www\.", "", bare, flags=re.IGNORECASE).rstrip("/")
    host, slash, path = bare.partition("/")
    return host.casefold() + slash + path


def _emails(plain: str) -> Iterator[Mark]:
    if "@" in plain:
        for match in _EMAIL.finditer(plain):
            yield _mark("email", match.start(), match[0], match[0].casefold())


def _phones(plain: str) -> Iterator[Mark]:
    for match in _PHONE.finditer(plain) if _DIGITS.search(plain) else ():
        yield _mark("identifier", match.start(), match[0], re.sub(r"\D", "", match[0]))


def _codes(plain: str) -> Iterator[Mark]:
    if "`" in plain:
        for match in _CODE.finditer(plain):
            key = match[1].strip()
            if key:
                yield Mark(match.start(), match.end(), Specific("identifier", match[0], key))


def _pieces(plain: str) -> Iterator[Mark]:
    if not _CODELIKE.search(plain):
        return
    for match in _PIECE.finditer(plain):
        piece = match[0]
        if piece.isalpha() and (piece.islower() or piece[0].isupper()):
            continue
        text = piece.rstrip(".,:!?/-" if "//" not in piece else ".,:!?").lstrip(":!?")
        start = match.start() + piece.index(text) if text else 0
        if text and _is_identifier(text):
            yield _mark("identifier", start, text, _identifier_key(text))


def _is_identifier(text: str) -> bool:
    if _INITIALS.fullmatch(text) or _TWO_SENTENCES.fullmatch(text):
        return False
    if text[0].isdecimal() and (_DIGITS_ONLY.fullmatch(text) or _is_quantity(text)):
        return False
    return bool(_IDENTIFIER.fullmatch(text) or _LOWER_CAMEL.fullmatch(text))


def _is_quantity(text: str) -> bool:
    """ "40k" and "5kg" are numbers, though a hash or a version may begin like one."""
    match = _QUANTITY.fullmatch(text)
    return match is not None and match[1].casefold() in {*UNITS, *SCALES, "st", "nd", "rd", "th", "am", "pm"}


def _identifier_key(text: str) -> str:
    if re.fullmatch(r"v\d.*", text, re.IGNORECASE):
        return text[1:].casefold()
    if re.fullmatch(r"[^\W\d_]+(?:-[^\W\d_]+)*-?\d[^\W_]*", text):
        return text.casefold().replace("-", "")  # GPT-4 and GPT4
    return text


def _mark(kind: str, start: int, text: str, key: str) -> Mark:
    return Mark(start, start + len(text), Specific(kind, text, key), (key,))


def quotes_in(plain: str) -> list[Mark]:
    """Quoted words; their key is the words, so that other quotation marks are the same quote."""
    found: list[Mark] = []
    for pattern in _QUOTES:
        found += [
            Mark(match.start(), match.end(), Specific("quote", match[0], key))
            for match in pattern.finditer(mask(plain, found))
            if (key := quote_key(match[1]))
        ]
    return found


def quote_key(text: str) -> str:
    return " ".join(QUOTED_WORD.findall(text.casefold()))
