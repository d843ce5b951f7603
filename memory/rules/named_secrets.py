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
    r"passw(?:or)?d|passphrase|passcode|passwort|kennwort|contrase[nñ]a|contrasena|mot de passe|wachtwoord|senha|\bpwd"
)
_WEAK = (
    r"api[ _-]?key|access[ _-]?key(?:[ _-]?id)?|secret[ _-]?(?:access[ _-]?)?key|auth[ _-]?key|private[ _-]?key|"
    r"client[ _-]?secret|account[ _-]?key|encryption[ _-]?key|signing[ _-]?key|secret|(?<!tik)token|credentials?|\bpin"
)
_WHERE = r"(?:_?\d{1,2}|_(?:prod|production|live|staging|test|dev|ci))?(?!\w)"  # "tokens" and "token_count" are numbers
_OF = r"(?:[ \t](?:for|to|of|on|at|in)(?:[ \t][\w.@-]{1,40}){1,4})?"
_IS = r"(?P<is>is|was|are|ist|lautet|es|est|é)"
_VALUE = r"(?:(?P<quote>['\"`])(?P<quoted>[^'\"`\n]{3,200})(?P=quote)|(?P<bare>[^\s'\"`]{3,200}))"
_NAMED = re.compile(
    rf"(?:(?P<strong>{_STRONG}|_pwd|_pass)\w{{0,20}}|(?P<weak>{_WEAK}){_WHERE})(?:['\"`]\]?|[*]{{1,2}})?{_OF}{_GAP}"
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
    r"(?P<secret>[A-Za-z0-9._~+/-]{6,2000}={0,2})(?![\w=])",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?<![A-Za-z])[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,100}:(?P<secret>[^\s/]{1,200})@(?=[\w\[])")
_TOKEN_ADDRESS = re.compile(r"(?<![A-Za-z])https?://(?P<secret>[A-Za-z0-9_-]{16,200})@(?=\w)")

# What is said of a secret, rather than one: "the password is wrong", `password: string`.
_WORDS = frozenset((Path(__file__).parent / "no_secrets.txt").read_text("utf-8").split())
_CODE = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::|->))*[A-Za-z_]\w*[(\[<]|(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\Z")
_HOLDER = re.compile(r"\.{3}|…|[xX*•.#_-]+\Z|[<\[{(].*|(?i:your)[_-]|\$\{|\$[A-Z][A-Z0-9_]*\Z")
_NAME_AGAIN = re.compile(rf"(?:\w{{0,20}}_)?(?:{_STRONG}|{_WEAK})s?(?:_[a-z_]{{1,20}}|\d)?\Z", re.IGNORECASE)
_TRAILING = ".,;:!?)]}>*"


def spans(text: str) -> Iterator[Span]:
    """Where each begins and ends, and what it is."""
    for pattern in (_ADDRESS, _TOKEN_ADDRESS):
        yield from (
            _span(found, "address credentials") for found in pattern.finditer(text) if not _is_none(found["secret"])
        )
    yield from (_span(found, "password") for found in _BASIC_OPTION.finditer(text))
    for found in _HEADER.finditer(text):
        secret = found["secret"]
        if _is_opaque(secret.rstrip("=.")) or (secret.endswith("=") and len(secret) >= 8):
            yield _span(found, "authorization header")
    for found in _OPTION.finditer(text):
        name = "quoted" if found["quoted"] else "bare"
        if not _is_none(found[name]):
            yield _span(found, "password", name)
    yield from _named(text)
    for pattern in (_BESIDE, _REVERSED):
        for found in pattern.finditer(text):
            value = found["secret"].strip(_TRAILING + "'\"`([{<")
            begin = found.start("secret") + found["secret"].find(value)
            if len(value) >= 4 and not _is_none(value) and _has_both(value):
                yield begin, begin + len(value), "password"


def _span(found: re.Match[str], kind: str, name: str = "secret") -> Span:
    return found.start(name), found.end(name), kind


def _named(text: str) -> Iterator[Span]:
    at = 0
    while (found := _NAMED.search(text, at)) is not None:
        name = "quoted" if found["quoted"] is not None else "bare"
        value, begin = found[name], found.start(name)
        if name == "bare":
            value = re.split(r"[,;)\]}]?(?:&\w+=|\\n|\Z)", value, maxsplit=1)[0].rstrip(_TRAILING)
        if len(value) >= 3 and not _is_none(value) and _is_secret(value, found):
            kind = "password" if found["strong"] else " ".join(re.split(r"[ _-]", found["weak"].lower()))
            yield begin, begin + len(value), kind
        at = found.end("sign") if found["sign"] else found.end("is")  # a value may name the next


def _is_none(value: str) -> bool:
    """What is said of one, what only stands where one goes, or an address (whose own secrets are looked for)."""
    return value.lower() in _WORDS or _HOLDER.match(value) is not None or "://" in value


def _is_secret(value: str, found: re.Match[str]) -> bool:
    if value.isdigit() and found["weak"] and found["weak"].lower() != "pin":
        return False  # a limit, or a count
    if found["quoted"] is not None:
        return bool(found["strong"]) or (" " not in value and _is_opaque(value))
    if found["sign"] and _is_code(found["bare"], value):
        return False
    return _is_opaque(value) or (bool(found["strong"]) and _ends_clause(found))


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
