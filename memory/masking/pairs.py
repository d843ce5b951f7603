"""Find secrets by the name next to the secret: `DB_PASSWORD=…`, `api_key: …`, `"client_secret": "…"`, `<password>…`,
and "my password is …".

Placeholders, types, variables, code and descriptions ("password: required") are not secrets.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

Span = tuple[int, int, str]  # begin, end, kind
HIDDEN = "\ufffc"  # replaces each character that no pattern may match

# --- names and what follows them


def _word(name: str, *, rest: str = "") -> str:
    """Return a pattern for a name that is followed by `rest`. The pattern does not match if another letter comes
    directly before or after this text. The pattern begins with the name, so that the search is fast."""
    return rf"{name}(?<![a-z]{name}){rest}(?![a-z])"


# Names in lower case. After a sure name, every value is a secret. After a weak name, a value is a secret only if it
# looks like a token.
_SURE = "|".join(
    (
        *("passwd", "password", "passwort", r"pass[ _-]?phrase", "passcode", "pwd", _word("pw"), _word("psk")),
        r"pass(?<=[a-z_]pass)(?![a-z])",  # db_pass
        *("mnemonic", "seed phrase", "recovery phrase"),
        *("kennwort", "contraseña", "mot de passe", "senha", "парол[ьяи]", "密码", "パスワード"),
    )
)
_KEYS = "api auth access account client encryption master private secret shared signing storage"
_WEAK = "|".join(
    (
        *(rf"{whose}[ _.-]?(?:access[ _-]?)?key" for whose in _KEYS.split()),
        *("secret", "token(?<!tiktoken)", "credential", "_auth(?![a-z])", "-auth(?![a-z])", "sess(?:ion)?_?id"),
        *(r"key(?<=[?&]key)(?==)", r"sig(?:nature)?(?==)"),  # in the query of a URL
        *(_word("pass"), _word("pin", rest="(?: code)?"), _word("otp")),
    )
)
_NAME = re.compile(f"{_SURE}|{_WEAK}")
_IS_SURE = re.compile(_SURE)
_IS = r"[ \t]{1,4} (?: is | was | ist | es | est | é ) (?: [ \t] now )?"
_TAIL = re.compile(  # the text between a name and its value
    rf"""(?: s | es )?                                                # passwords
    (?: _?\d{{1,2}} | _(?: base | prod | production | live | staging | test | dev | ci | new | old | value ) )?
    _{{0,2}}
    (?P<close> \\{{0,3}} ['"`] \]? | [*_]{{1,2}} | \] )?         # "password" or **password**
    (?: [ \t] \( [^()\n]{{1,40}} \)                              # password (of the database)
      | [ \t] (?: for | of | to ) [ \t] [\w\ .@'-]{{1,40}}? )?   # password for the database
    (?:
        (?: {_IS} )? [ \t]{{0,4}}
        (?P<sign> := | => | ={{1,3}} | !={{1,2}} | :{{1,2}} ) (?P<gap> [ \t]{{0,8}} )
      | [ \t,;\r\n]{{1,40}} \\{{0,3}} ['"]? (?P<value> value ) \\{{0,3}} ['"]? [ \t]{{0,4}} [:=]
                                                                 # name: DB_PASSWORD, value: …
      | {_IS} (?= [ \t] )                                        # password is …
    )
    (?: \*\* | __ )? [ \t]{{0,4}}""",
    re.VERBOSE,
)
_ELEMENT = re.compile(  # <password>…</password>
    rf"[^<>\n]{{0,60}}>\s{{0,20}}(?:<!\[CDATA\[)?(?P<value>[^<>\s\]{HIDDEN}]{{3,200}})(?:\]\]>)?\s{{0,20}}</"
)
_QUOTED = re.compile(
    rf"""(?: [bru@f$]{{1,2}} (?= ['"] ) )?                       # b"…", f'…'
    (?P<quote> \\{{0,3}} (?: \"\"\" | \'\'\' | ['"`] ) )
    (?P<value> (?: (?! (?P=quote) ) (?: \\[^\n] | [^\\\n{HIDDEN}] ) ){{1,1000}}? ) (?P=quote)""",
    re.VERBOSE | re.IGNORECASE,
)
_BARE = re.compile(  # a value without quotes, up to a space or the start of something else
    rf"""(?:
        (?! & (?: amp; | quot; | [\w.-]+= )                      # the next field of a URL
          | [,;] [ \w.-]{{0,30}} [=:]                            # the next pair
          | \\+ [nrt"'] | </ )                                   # a line end or a quote in a string, the next tag
        [^\s'"`|{HIDDEN}]
    ){{3,400}}""",
    re.VERBOSE,
)
_PHRASE = re.compile(r"[a-z]{1,20}(?: [a-z]{1,20}){3,23}")
_ENDS = re.compile(r"[.,;:!?)\]}>*]*[ \t]*(?:\Z|[\n\r)\]}|<'\"`*\\&,;]|[\w.-]{1,20} ?[=:])")  # what can follow a value
_TRAILING = ".,;:!?)]}>*"

# --- values

# One of these words alone is not a secret. The words in the first list describe a secret, or they are code. The words
# in the second list occur in sentences.
_WORDS_ALONE = (
    "absent all argon2 argon2id base64 bcrypt bool boolean bytes char clear compromised correct default different "
    "disabled empty enabled expired false field file generated hash hashed hidden incorrect input int integer "
    "invalid leaked length limit long longer lost mandatory max maximum md5 min minimum missing new nil none "
    "nothing now null number oauth oauth2 object off old optional prompt public random refresh removed required "
    "safe same saved secure sent set sha256 shared short stale stored str string strong temporary text true type "
    "undefined unique unknown unset unused user username valid value var void weak wrong yes"
)
_WORDS_OF_SENTENCES = (
    "a above also an and any are ask as at be been below but by can changed characters email encrypted enter "
    "entered expires for forgot forgotten from generate has have he i if in is it its letters matches must my "
    "needed never no nobody not of on only or our please raise reset return rotate see she should so that the "
    "their them there they this to too use wait was we what when where which who will with you your"
)
_SENTENCE = frozenset(_WORDS_OF_SENTENCES.split())
_ORDINARY = _SENTENCE.union(_WORDS_ALONE.split())
_PLACEHOLDER = re.compile(
    r"""\.{3} | … | [xX*•.#_?-]+ \Z                                # ..., xxxx, ****
    | [<\[{(] | &lt;                                             # <your password>
    | \#[0-9a-fA-F]{3,8} \Z                                      # a colour
    | (?: ~ | \.{1,2} )? (?: /[\w.-]+ )+ /? \Z | .*://           # a path, a URL
    | \$[({] | \$[A-Za-z_]\w* (?: \Z | [,;:/] )                  # $PASSWORD
    | %[A-Z_]{2,40}% \Z | %[sdr(]                                # %PASSWORD%, %s
    | !\d | !(?: vault | secret | ref | sub | env | include )\b  # tags of YAML
    | (?i: your[_-].*
         | (?: your | my | some | insert | enter | example | placeholder | redacted | change[_-]?me | dummy )
           (?: [_-][a-z_-]* )? ) \Z""",
    re.VERBOSE,
)
_NAMED = re.compile(  # the name of another secret: api_key=apiKeyFromFile
    rf"[$@!]?[\w.-]{{0,40}}?(?i:{_NAME.pattern})s?(?:_[A-Za-z_]{{1,20}})?\d?(?:[A-Z][a-z]{{1,20}}){{0,3}}"
)
_MEMBER = r"(?:(?:\.|::|->|\?\.)[A-Za-z_]\w{0,60})"
_CODE = re.compile(rf"[$@%&!]?[A-Za-z_]\w{{0,60}}{_MEMBER}{{0,8}}(?:[(\[<{{]|(?<=\.)\Z)")  # f(…
_DOTTED = re.compile(rf"[A-Za-z_]\w{{0,60}}{_MEMBER}{{1,8}}")  # settings.password
# Templates, and default values of shells.
_TEMPLATE = re.compile(r"\$?\{\{[^{}\n]{0,200}\}\}|\$\{[^{}\n]{0,200}\}|\$\([^()\n]{0,200}\)")
_KIND_OF = re.compile(r"[A-Za-z]{1,10}[-_ ]?\d{1,5}(?:[-_]\w{1,8})?|\d+(?:[.:-]\d+)*[A-Za-z]{0,5}")  # RS256, 30min
_CONSTANT = re.compile(r"[A-Z]{2,30}\d?(?:_[A-Z]{1,30}\d?){1,8}")
_HUMPS = re.compile(r"[A-Z]?[a-z]{0,30}(?:[A-Z]{1,5}[a-z]{2,30}){1,6}")  # camelCase
_SIGN = re.compile(  # inside, at the end, or at the start
    r"\w [!#$%^&*+=~@?|\\/]+ \w | [!#$%^&*+=~] \Z | \A [!#$%^&*+~@] [\w!#$%^&*+=~@-]{3}", re.VERBOSE
)


def is_opaque(value: str) -> bool:
    """Return True if the value does not look like a word. Such a value has letters together with digits, or special
    characters, or mixed case. A value that has only digits must have at least four."""
    if value.isdigit():
        return len(value) >= 4
    is_mixed = not (value[1:].islower() or value.isupper() or _HUMPS.fullmatch(value))
    return _has_both(value) or bool(_SIGN.search(value)) or (is_mixed and value.isalnum() and len(value) >= 8)


def is_placeholder(value: str) -> bool:
    return value.lower() in _ORDINARY or bool(_PLACEHOLDER.match(value) or _NAMED.fullmatch(value))


def _has_both(value: str) -> bool:
    return any(map(str.isalpha, value)) and any(map(str.isdigit, value))


class _Pair(NamedTuple):
    """A name, and the text between the name and its value."""

    name: str
    is_sure: bool
    tail: re.Match[str]

    @property
    def is_shell(self) -> bool:
        """Whether the pair sets a variable of a shell, such as `DB_PASSWORD=…`."""
        return self.tail["sign"] == "=" and not self.tail["gap"] and self.name.isupper()


def find(view: str) -> Iterator[Span]:
    text = _TEMPLATE.sub(lambda found: HIDDEN * len(found[0]), view)
    lower = text.lower()
    at = 0
    while (name := _NAME.search(lower, at)) is not None:
        at = name.end()
        is_sure = _IS_SURE.match(lower, name.start()) is not None
        tail = _TAIL.match(lower, at)
        pair = _Pair(text[name.start() : at], is_sure, tail) if tail else None
        place = _value(text, pair) if pair else _in_element(text, at, is_sure=is_sure)
        if place is not None:
            kind = "password" if is_sure else " ".join(re.split(r"[ _.-]+", name[0].strip("_-")))
            yield *place, kind
            at = place[1]


def _in_element(text: str, at: int, *, is_sure: bool) -> tuple[int, int] | None:
    element = _ELEMENT.match(text, at)
    if element is None or is_placeholder(element["value"]) or not (is_sure or _is_token(element["value"])):
        return None
    return element.span("value")


def _value(text: str, pair: _Pair) -> tuple[int, int] | None:
    at = pair.tail.end()
    if (quoted := _QUOTED.match(text, at)) is not None:
        return quoted.span("value") if _is_quoted_secret(pair, quoted["value"]) else None
    words = _PHRASE.match(text, at) if pair.name.lower().endswith(("phrase", "mnemonic")) else None
    if words is not None and (words[0].count(" ") > 10 or not _SENTENCE.intersection(words[0].split())):
        return words.span()
    bare = _BARE.match(text, at)
    value = bare[0].rstrip(_TRAILING) if bare else ""
    if bare is None or len(value) < 3 or not _is_bare_secret(text, pair, bare, value):
        return None
    marks = re.match("[!?]*" if pair.tail["sign"] and is_opaque(value) else "", bare[0][len(value) :])
    return at, at + len(value) + (marks.end() if marks else 0)


def _is_quoted_secret(pair: _Pair, value: str) -> bool:
    if is_placeholder(value) or not any(map(str.isalnum, value)):
        return False
    if not pair.is_sure:
        return " " not in value and _is_weak_secret(pair, value)
    words = value.lower().split()
    return len(words) == 1 or not (_SENTENCE.intersection(words) or _NAME.search(value.lower()))


def _is_bare_secret(text: str, pair: _Pair, bare: re.Match[str], value: str) -> bool:
    tail = pair.tail
    is_code = _CODE.match(bare[0]) or (tail["sign"] and _DOTTED.fullmatch(value))
    if is_placeholder(value) or (is_code and not pair.is_shell):
        return False
    if (tail["close"] or "")[-1:] in ("'", '"'):  # in JSON a value without quotes is a number
        return _has_both(value) and not value[0].isdigit()
    if not pair.is_sure:
        return _is_weak_secret(pair, value)
    if tail["sign"] == "=" and tail["gap"] and re.fullmatch(r"[a-z]+(?:_[a-z]+)+", value):
        return False  # a variable
    if is_opaque(value) or pair.is_shell:
        return True
    return bool(tail["sign"] or tail["value"]) and _ENDS.match(text, bare.start() + len(value)) is not None


def _is_weak_secret(pair: _Pair, value: str) -> bool:
    name = pair.name.lower()
    if name.startswith(("pin", "otp")):
        return value.isdigit() and 4 <= len(value) <= 12
    if name == "pass":
        return len(value) >= 6 and _has_both(value)
    return _is_token(value, least=8 if pair.is_shell else 20)


def _is_token(value: str, least: int = 20) -> bool:
    """Return whether the value looks like a token, and not like a word, a type, a date or a constant. If a value has
    only upper-case letters, or only lower-case letters, it must have at least `least` letters."""
    is_other = value.isdigit() or _KIND_OF.fullmatch(value) or _CONSTANT.fullmatch(value)
    is_long = len(value) >= least and (value.islower() or value.isupper())
    return len(value) >= 8 and not is_other and (is_opaque(value) or (value.isalpha() and is_long))
