"""Whether what is given for a secret is one: no word that is said of secrets, no type or variable, no place for one."""

from __future__ import annotations

import re
from pathlib import Path

# What is said of a secret, rather than one: "the password is wrong", `password: string`. What is in the first part says
# so when it stands alone ("correct horse battery staple" is one), what is in the second among others too; the third has
# the small words that sentences are made with.
_ALONE, _ANYWHERE, _SMALL = (
    frozenset(part.split()) for part in (Path(__file__).parent / "no_secrets.txt").read_text("utf-8").split("\n\n")
)
_NAMES = r"passw(?:or)?d|passphrase|passcode|passwort|pwd|secret|token|api_?key|credentials?|key"
_NAME_AGAIN = re.compile(
    rf"(?:[a-z0-9]{{0,20}}[_-]){{0,4}}(?:{_NAMES})s?(?:_[a-z_]{{1,20}}|\d)?\Z|(?i:{_NAMES})\d?\Z"
    r"|[a-z]{0,20}(?:Password|Passphrase|Secret|Token|ApiKey|Key)(?:[A-Z][a-z]{1,20}){0,3}\d?\Z"
    r"|(?:[A-Z][a-z]{1,20}){0,3}(?:Password|Token|Secret|Key)(?:[A-Z][a-z]{1,20}){0,3}\Z"
)
_CODE = re.compile(
    r"[$@%&!]?(?:[A-Za-z_]\w{0,60}(?:\.|::|->|\?\.)){0,8}[A-Za-z_]\w{0,60}[(\[<]|[$@%&!]?(?:[A-Za-z_]\w{0,60}(?:\.|::|->|\?\.)){1,8}(?:[{(\[]|[A-Za-z_]\w{0,60}\Z)"
)
_TYPE = re.compile(
    r"(?:ed25519|ed448|x25519|curve25519|(?:rsa|dsa|aes|sha|sha3|hmac|ecdsa|p|ipv|http|utf|erc|bep|rfc|bip|md|argon|"
    r"gpio|pin|secp|hs|rs|es|ps|base|oauth|totp|port|h|v)"
    r"[-_/ ]?\d{1,4}(?:[a-z]{1,2}\d?)?(?:[-_][a-z0-9]{1,8}){0,3}|pbkdf2\w{0,20}|[acl]l?100k_base|o200k_base|x509|"
    r"latin-?\d|iso-?8859-?\d{1,2}|#[0-9a-f]{3,8}|chacha20\S{0,20}|"
    r"\d{1,6}(?:\.\d{1,6})*(?:[kmgt]i?b?|px|em|rem|ms|s|min|h|d|x|th|st|nd|rd|bits?|-bits?|bytes?|chars?|%)|"
    r"\d{4}-\d\d(?:-\d\d\S{0,20})?|\d{1,2}:\d\d(?::\d\d)?)\Z",
    re.IGNORECASE,
)
_HUMPS = re.compile(r"[A-Z]?[a-z]{0,30}(?:[A-Z]{1,5}[a-z]{2,30}){1,6}\Z")  # a name of camel case
_HOLDER = re.compile(
    r"\.{3}|…|[xX*•.#_?-]+\Z|[<\[{(\ufffc]|(?i:your)[_-]|\$[({]|\$[A-Za-z_]\w*(?:\Z|[,;:/])|%[A-Z_]{2,40}%\Z|%[sdr(]|&lt;|!\d|!(?:vault|secret|ref|sub|env|include)\b|"
    r"(?i:placeholder|redacted|changeme|(?:my|some|insert|enter|example)[_-][a-z_-]{0,40})\Z"
)
_STRUCTURE = re.compile(r"\A\s{0,9}[,:}\]].{0,200}[,:{\[]\s{0,9}\Z|\"\s{0,9}[,:}\]]|[,:{\[]\s{0,9}\\{0,9}\"", re.DOTALL)
_SIGN = re.compile(r"\w[!#$%^&*+=~@?|\\/]+\w|[!#$%^&*+=~]\Z|\A[!#$%^&*+~@][\w!#$%^&*+=~@-]{3}")
_PHRASE_WORD = re.compile(r"[^\W_](?:[^\W_]|['&+!#$%*@.-]){0,30}\Z")
_SPOKEN = re.compile(r"[a-z]{2,30}(?:ed|ing|ly|able|ible|less|ful|ous|ive)\Z")


def is_none(value: str) -> bool:
    """What is said of one, what only stands where one goes, or an address (whose own secrets are looked for)."""
    word = value.lower().strip("*_~?")
    is_word = word in _ALONE or word in _ANYWHERE or word in _SMALL
    return is_word or "://" in value or any(pattern.match(value) for pattern in (_TYPE, _HOLDER))


def is_code(bare: str, value: str) -> bool:
    """What is given to a variable: a call, an index, a name with a dot in it, one like the variable's own."""
    return any(_CODE.match(text) for text in (bare.rstrip(".,;:!?"), value)) or is_name(value)


def is_snake(value: str) -> bool:
    return re.fullmatch(r"[a-z]{1,30}(?:_[a-z]{1,30}){1,6}", value) is not None


def is_constant(value: str) -> bool:
    return re.fullmatch(r"[A-Z]{2,30}\d?(?:_[A-Z]{1,30}\d?){1,8}", value) is not None


def is_name(value: str) -> bool:
    return _NAME_AGAIN.match(value.lstrip("!$@&")) is not None


def is_phrase(text: str, *, is_told: bool, may_have_small: bool) -> bool:
    """Some words that speak of nothing a password may be or do; `is_told` when they are said to be one ("is ...")."""
    words = [word.strip(".,;:!?") for word in text.split()]
    if not 2 <= len(words) <= 12 or not all(map(_PHRASE_WORD.match, words)):
        return False
    lower = [word.lower() for word in words]
    if any(word in _ANYWHERE for word in lower) or (not may_have_small and any(word in _SMALL for word in lower)):
        return False
    if is_told and (_SPOKEN.match(lower[0]) or (is_none(lower[0]) and len(words) < 4)):
        return False
    return len(words) > 2 or not any(word in _ALONE for word in lower)


def is_seed(text: str) -> bool:
    """The words that a wallet is made again from."""
    words = text.split()
    return 11 <= len(words) <= 25 and all(word.isalpha() and word.islower() for word in words)


def speaks_of_one(text: str) -> bool:
    """Text of more words than one that says something of a password: "must be at least …"."""
    words = [word.strip(".,;:!?'\"") for word in text.lower().split()]
    said = [word for word in words if word in _ANYWHERE]
    return len(words) > 1 and (len(said) > 1 or words[0] in said)


def is_between_quotes(text: str) -> bool:
    """It has no letter, or stands behind one quoted text and before another: of JSON, not of a value in it."""
    return not any(map(str.isalnum, text)) or _STRUCTURE.search(text) is not None


def is_spoken(word: str) -> bool:
    """A word that tells how something is: "stored", "confusing"."""
    return _SPOKEN.match(word) is not None


def is_opaque(value: str) -> bool:
    """It is no word: it has a digit among letters, a sign in it, or capitals in its midst; or is a longer number."""
    if value.isdigit():
        return len(value) >= 4
    is_mixed = not value[1:].islower() and not value.isupper() and value.isalnum() and len(value) >= 8
    is_mixed = is_mixed and not _HUMPS.match(value)
    return has_both(value) or _SIGN.search(value) is not None or is_mixed


def has_both(value: str) -> bool:
    return any(letter.isalpha() for letter in value) and any(letter.isdigit() for letter in value)
