"""Secrets that are one by what is said of them: "my password is …", `API_KEY=…`, `Authorization: Bearer …`, addresses
with credentials. What is said of an ordinary word, a type or a variable is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

Span = tuple[int, int, str]

_GAP = r"[ \t]{0,4}"
_STRONG = (
    r"passw(?:or)?d|passphrase|passcode|passwort|kennwort|contrase[nñ]a|contrasena|mot de passe|wachtwoord|senha|\bpwd|"
    r"_pwd|_pass"
)
_WEAK = (
    r"api[ _-]?key|access[ _-]?key(?:[ _-]?id)?|secret[ _-]?(?:access[ _-]?)?key|auth[ _-]?key|private[ _-]?key|"
    r"client[ _-]?secret|account[ _-]?key|encryption[ _-]?key|signing[ _-]?key|secret|token|credentials?|\bpin"
)
_OF = r"(?:[ \t](?:for|to|of|on|at|in)(?:[ \t][\w.@-]{1,40}){1,4})?"
_IS = r"(?P<is>is|was|are|ist|lautet|es|est|é)"
_VALUE = r"(?:(?P<quote>['\"`])(?P<quoted>[^'\"`\n]{3,200})(?P=quote)|(?P<bare>[^\s'\"`]{3,200}))"
_NAMED = re.compile(
    rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK}))\w{{0,20}}(?:['\"`]\]?|[*]{{1,2}})?{_OF}{_GAP}"
    rf"(?:(?P<sign>:=|=>|={{1,3}}|!={{1,2}}|:{{1,2}}){_GAP}[*]{{0,2}}{_GAP}|\b{_IS}:?[ \t]{{1,4}}){_VALUE}",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?<!\S)--?(?:\w{{1,20}}-)?(?:password|passwd|pass|token|secret|api-?key)(?:=|[ \t]{{1,4}}){_VALUE}",
    re.IGNORECASE,
)
_BESIDE = re.compile(rf"(?:{_STRONG})[ \t]{{1,3}}(?P<secret>[^\s'\"`]{{6,200}})", re.IGNORECASE)
_REVERSED = re.compile(
    rf"(?<!\S)(?P<secret>\S{{4,200}})[ \t](?:is|was)[ \t](?:my|the|our|your|his|her|their)[ \t]"
    rf"(?:\w{{1,20}}[ \t]){{0,2}}(?:{_STRONG}|{_WEAK})",
    re.IGNORECASE,
)
_BASIC_OPTION = re.compile(r"(?<!\S)(?:-u|--user)[ \t=]{1,4}['\"]?[\w.@-]{1,100}:(?P<secret>[^\s'\"]{3,200})")
_HEADER = re.compile(
    r"\b(?:authorization['\"]?[ \t]{0,3}[:=][ \t]{0,3}['\"]?(?:[a-z]{1,20}[ \t]{1,3})?|"
    r"bearer[ \t]{1,3}|basic[ \t]{1,3})"
    r"(?P<secret>[A-Za-z0-9._~+/=-]{6,2000})",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?<![A-Za-z])[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:(?P<secret>[^\s/]{1,200})@(?=[\w\[])")
_TOKEN_ADDRESS = re.compile(r"(?<![A-Za-z])https?://(?P<secret>[A-Za-z0-9_-]{16,200})@(?=\w)")

# What is said of a secret, rather than one: "the password is wrong", `password: string`.
_WORDS = frozenset((Path(__file__).parent / "no_secrets.txt").read_text("utf-8").split())
_CODE = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::|->))*[A-Za-z_]\w*[(\[<]|(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\Z")
_HOLDER = re.compile(r"\.{3}|…|[xX*•.#_-]+\Z|[<\[{(].*|(?i:your)[_-]|\$\{|\$[A-Z][A-Z0-9_]*\Z")
_NAME_AGAIN = re.compile(rf"(?:\w{{0,20}}_)?(?:{_STRONG}|{_WEAK})s?\d?\Z", re.IGNORECASE)
_TRAILING = ".,;:!?)]}>*"


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each begins and ends, and what it is."""
    for pattern, kind in ((_ADDRESS, "address credentials"), (_TOKEN_ADDRESS, "address credentials")):
        yield from ((found.start("secret"), found.end("secret"), kind) for found in pattern.finditer(text))
    for found in _BASIC_OPTION.finditer(text):
        yield found.start("secret"), found.end("secret"), "password"
    for found in _HEADER.finditer(text):
        if _is_opaque(found["secret"].rstrip("=.")) or found["secret"].endswith("="):
            yield found.start("secret"), found.end("secret"), "authorization header"
    for found in _OPTION.finditer(text):
        value, begin = found["quoted"] or found["bare"], found.start("quoted" if found["quoted"] else "bare")
        if not _HOLDER.match(value):
            yield begin, begin + len(value), "password"
    yield from _named(text)
    for pattern in (_BESIDE, _REVERSED):
        for found in pattern.finditer(text):
            value = found["secret"].strip(_TRAILING + "'\"`([{<")
            begin = found.start("secret") + found["secret"].find(value)
            if len(value) >= 4 and value.lower() not in _WORDS and _has_both(value):
                yield begin, begin + len(value), "password"


def _named(text: str) -> Iterator[Span]:
    at = 0
    while (found := _NAMED.search(text, at)) is not None:
        is_strong = found["strong"] is not None
        kind = "password" if is_strong else " ".join(re.split(r"[ _-]", found["weak"].lower()))
        yield from _valued(found, kind, is_strong=is_strong, is_said=found["is"] is not None)
        at = found.end("sign") if found["sign"] else found.end("is")  # a value may name the next


def _valued(found: re.Match[str], kind: str, *, is_strong: bool, is_said: bool) -> Iterator[Span]:
    if found["quoted"] is not None:
        value, begin = found["quoted"], found.start("quoted")
        if _is_quoted_secret(value, is_strong=is_strong):
            yield begin, begin + len(value), kind
        return
    begin = found.start("bare")
    value = re.split(r"[,;)\]}]?(?:&\w+=|\\n|\Z)", found["bare"], maxsplit=1)[0].rstrip(_TRAILING)
    if len(value) >= 3 and _is_bare_secret(value, found, is_strong=is_strong, is_said=is_said):
        yield begin, begin + len(value), kind


def _is_quoted_secret(value: str, *, is_strong: bool) -> bool:
    if value.lower() in _WORDS or _HOLDER.match(value):
        return False
    return is_strong or (" " not in value and _is_opaque(value))


def _is_bare_secret(value: str, found: re.Match[str], *, is_strong: bool, is_said: bool) -> bool:
    if value.lower() in _WORDS or _HOLDER.match(value) or (not is_said and _is_code(found["bare"], value)):
        return False
    return _is_opaque(value) or (is_strong and _ends_clause(found))


def _is_code(bare: str, value: str) -> bool:
    """What is given to a variable: a call, an index, a name with a dot in it, one like the variable's own."""
    return _CODE.match(bare.rstrip(".,;:!?")) is not None or _NAME_AGAIN.match(value) is not None


def _ends_clause(found: re.Match[str]) -> bool:
    """Nothing more is said: what goes on ("is stored in …") tells of it."""
    after = found.string[found.start("bare") + len(found["bare"].rstrip(_TRAILING)) :][:1]
    return not after or after in ".,;!?)\n\r"


def _is_opaque(value: str) -> bool:
    """It is no word: it has a digit among letters, a sign in it, or capitals in its midst; or is a longer number."""
    if value.isdigit():
        return len(value) >= 4
    has_sign = re.search(r"\w[!#$%^&*+=~@?|\\/]+\w|[!#$%^&*+=~]\Z", value) is not None
    is_mixed = not value[1:].islower() and not value.isupper() and value.isalnum() and len(value) >= 8
    return _has_both(value) or has_sign or is_mixed


def _has_both(value: str) -> bool:
    return any(letter.isalpha() for letter in value) and any(letter.isdigit() for letter in value)
