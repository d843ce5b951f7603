"""Secrets that are one by where they stand: an option of a command, a header, a cookie, an address, an element, a
table's cell.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import chain

from memory.masking import secret_values as values
from memory.masking.secret_finding import Finder, Span
from memory.masking.secret_names import SIGNS, STRONG, WEAK
from memory.masking.seen_text import Seen

_QUOTE = r"(?:\\{0,3}['\"])?"
_WORD = r"[^\s'\"`\ufffc]"
# --- commands: the options of some mean a password, those of others a port, a path, a name

_LINE = r"[^\n|;&]{0,200}?[ \t]"
_COMMANDS = re.compile(
    rf"(?<![\w-])(?:(?:mysql|mysqldump|mysqladmin|mysqlimport|mysqlshow|mariadb|mariadb-dump|mycli|7z|7za)\b{_LINE}-p"
    rf"|(?:sshpass|mongo|mongosh|mongodump|mongorestore|mongoexport|mongoimport)\b{_LINE}-p[ \t]{{0,4}}"
    r"|(?:docker|podman|buildah|skopeo|helm|oras|crane|nerdctl|az|oc|cf)[ \t](?:[\w-]{1,20}[ \t]){0,2}login\b"
    rf"{_LINE}-p[ \t=]{{0,4}}"
    rf"|(?:redis-cli|valkey-cli|keydb-cli)\b{_LINE}-a[ \t]{{1,4}}"
    rf"|(?:zip|unzip|sqlcmd|bcp|ipmitool|impala-shell)\b{_LINE}-P[ \t]{{0,4}}"
    rf"|(?:ldapsearch|ldapmodify|ldapadd|ldapwhoami|ldapdelete)\b{_LINE}-w[ \t]{{0,4}}"
    rf"|(?:xfreerdp|wfreerdp|rdesktop|cmdkey)\b{_LINE}/(?:p|pass|pw):"
    rf"|(?:smbclient|rpcclient|curl|smbmap)\b{_LINE}-U[ \t]{{0,4}}{_QUOTE}[\w.\\@-]{{1,60}}%"
    rf"|openssl\b{_LINE}-pass(?:in|out)?[ \t]pass:"
    rf"|htpasswd\b{_LINE}-[a-zA-Z]{{0,4}}b[a-zA-Z]{{0,4}}[ \t]\S{{1,100}}[ \t]\S{{1,60}}[ \t]{{1,4}}"
    rf"|vault[ \t]login[ \t]{{1,4}}(?![-\w]{{1,20}}=|-)"
    r"|machine\s{1,9}\S{1,100}\s{1,9}login\s{1,9}\S{1,100}\s{1,9}password[ \t]{1,4}"
    rf")(?P<quote>{_QUOTE})(?P<secret>{_WORD}{{1,200}})"
)
_COMMAND_SIGNS = (
    *("mysql", "mariadb", "mycli", "7z", "sshpass", "mongo", "login", "-cli", "zip", "sqlcmd", "bcp", "ipmitool"),
    *("impala-shell", "ldap", "freerdp", "rdesktop", "cmdkey", "smb", "rpcclient", "curl", "openssl", "htpasswd"),
    *("vault", "machine", "auth", "identified by", "securestring", "pass", "token", "secret", "key"),
)
_OPTION = re.compile(
    r"(?<!\S)--?(?:\w{1,20}-)?(?:password|passwd|passphrase|pass|token|secret|api-?key|requirepass)"
    rf"(?:=|[ \t]{{1,4}})(?P<quote>{_QUOTE})(?P<secret>{_WORD}{{3,200}})"
)
_PIPED = re.compile(
    rf"echo[ \t]{{1,3}}(?:-n[ \t])?(?P<quote>{_QUOTE})(?P<secret>{_WORD}{{3,200}})['\"]?[ \t]{{0,3}}\|[^\n|]{{0,80}}"
    r"(?:--password-stdin|sudo[ \t]{1,3}-S|--stdin|chpasswd|--passphrase-fd)"
)
_SET = re.compile(
    rf"(?:setenv|env|arg|setx)[ \t]{{1,3}}[a-z0-9_]{{0,40}}?(?:{STRONG})[ \t]{{1,3}}(?P<quote>{_QUOTE})"
    rf"(?P<secret>{_WORD}{{3,200}})(?=['\"]?[ \t]{{0,8}}(?:\n|\Z))"
)
_CALLED = re.compile(
    r"(?:identified by|password\(|securestring|(?:auth|auth=|login|authenticate)\(['\"][\w.@+-]{1,60}['\"],)[ \t]{0,4}"
    r"(?P<quote>['\"])(?P<secret>[^\s'\"`\ufffc]{3,200})(?=['\"])"
)
_BASIC_OPTION = re.compile(
    rf"(?<!\S)(?:-u|--user|--auth|-a|--proxy-user)[ \t=]{{0,4}}{_QUOTE}[\w.@+-]{{1,100}}:(?P<secret>[^\s'\"]{{3,200}})"
)
_FETCHING = re.compile(r"(?<![\w-])(?:curl|wget|https?|xh|ab|siege|hey|wrk|httpie)[ \t]")


def _of_commands(seen: Seen) -> Iterator[Span]:
    for found in chain(
        _COMMANDS.finditer(seen.text),
        _OPTION.finditer(seen.folded),
        _PIPED.finditer(seen.text),
        _SET.finditer(seen.folded),
        _CALLED.finditer(seen.folded),
    ):
        secret = found["secret"].rstrip(_AFTER)
        if not values.is_none(secret) and not values.is_between_quotes(secret):
            yield _span(found)


def _basic(seen: Seen) -> Iterator[Span]:
    for found in _BASIC_OPTION.finditer(seen.text):
        secret = found["secret"]
        line = seen.text.rfind("\n", max(0, found.start() - 300), found.start()) + 1
        is_fetching = _FETCHING.search(seen.text, max(line, found.start() - 300), found.start()) is not None
        if not values.is_none(secret) and (is_fetching or (values.is_opaque(secret) and not secret.isdigit())):
            yield _span(found)


# --- headers and cookies

_HEADER = re.compile(
    r"(?<!\w)(?:authorization(?:\\{0,3}['\"])?[ \t]{0,3}[:=][ \t]{0,3}(?:\\{0,3}['\"])?(?:[a-z]{1,20}[ \t]{1,3})?|"
    r"bearer[ \t]{1,3}|(?P<basic>basic)[ \t]{1,3})"
    r"(?P<secret>[a-z0-9._~+/-]{6,2000}={0,2})(?![\w=])"
)
_COOKIE = re.compile(
    r"(?<!\w)(?:set-)?cookie2?(?:\\{0,3}['\"])?[ \t]{0,3}[:=][ \t]{0,3}(?:\\{0,3}['\"])?(?P<pairs>[^\n\"]{3,4000})"
)
_PAIR = re.compile(r"(?<![\w.%-])(?P<name>[\w.%-]{1,60})=(?P<secret>[^\s;,'\"\\]{4,4000})")
_SESSION = re.compile(r"sess|sid|token|auth|csrf|xsrf|jwt|login|remember|ticket|identity|secret|key|pass")
_ATTRIBUTES = frozenset(["path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"])
_LOOSE_COOKIE = re.compile(
    r"(?<!\w)(?:sessionid|phpsessid|jsessionid|asp\.net_sessionid|connect\.sid|csrftoken|laravel_session|_session_id)"
    r"[ \t]{0,2}=[ \t]{0,2}['\"]?(?P<secret>[\w%.:+/-]{16,400})"
)


def _headers(seen: Seen) -> Iterator[Span]:
    for found in _HEADER.finditer(seen.folded):
        secret = seen.text[found.start("secret") : found.end("secret")]
        if _holds_basic(secret) if found["basic"] else _is_in_header(secret):
            yield _span(found, "authorization header")


def _is_in_header(secret: str) -> bool:
    return values.is_opaque(secret.rstrip("=.")) or (secret.endswith("=") and len(secret) >= 8)


def _holds_basic(secret: str) -> bool:
    """It is a name and a password, as such a header has them."""
    try:
        return b":" in base64.b64decode(secret, validate=True)
    except (binascii.Error, ValueError):
        return False


def _cookies(seen: Seen) -> Iterator[Span]:
    for header in _COOKIE.finditer(seen.folded):
        begin, end = header.span("pairs")
        for found in _PAIR.finditer(seen.text, begin, end):
            name, secret = found["name"].lower(), found["secret"]
            is_secret = _SESSION.search(name) or (len(secret) >= 12 and values.is_opaque(secret))
            if name not in _ATTRIBUTES and is_secret and not values.is_none(secret):
                yield _span(found, "cookie")
    for found in _LOOSE_COOKIE.finditer(seen.folded):
        if values.is_opaque(found["secret"]):
            yield _span(found, "cookie")


# --- addresses

_ADDRESS = re.compile(
    r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,100}:(?P<secret>[^\s/\"`<>\ufffc]{1,200})@(?=[\w\[])"
)
_REMOTE = re.compile(  # of one without a scheme, where a command says that it is one
    r"(?<![\w-])(?:ssh|scp|sftp|rsync|lftp|mosh)[ \t](?:[^\n|;&]{0,200}?[ \t])?"
    r"[\w.+-]{1,60}:(?P<secret>[^\s:/@\"'`<>\ufffc]{3,100})@(?=[\w\[])"
)
_TOKEN_ADDRESS = re.compile(r"(?<![A-Za-z])https?://(?P<secret>[A-Za-z0-9_-]{16,200})@(?=\w)")
_SIGNED = re.compile(
    r"[?&;](?:amp;)?(?:sig|signature|x-(?:amz|goog|ms|oss|cos)-(?:signature|security-token)|security-token|hmac|hdnts|hdnea|"
    r"access_token|refresh_token|id_token|auth_token|auth|jwt|apikey|api_key|api-key|key|code|client_secret|sas|ticket|"
    r"magic|invite|reset|st)=(?P<secret>[\w%.+/=~-]{16,4000})"
)


def _addresses(seen: Seen) -> Iterator[Span]:
    for pattern in (_ADDRESS, _TOKEN_ADDRESS, _REMOTE):
        for found in pattern.finditer(seen.text):
            if not values.is_none(found["secret"]):
                yield _span(found, "address credentials")


def _signed(seen: Seen) -> Iterator[Span]:
    for found in _SIGNED.finditer(seen.folded):
        if values.has_both(found["secret"]) and not values.is_name(found["secret"]):
            yield _span(found, "signed address")


# --- cards

_CARD = re.compile(r"(?<![\w.-])[3-6]\d{3}(?:[ -]?\d){8,14}\d(?![\w-]|\.\d)")
_CARD_CODE = re.compile(r"(?<!\w)(?:cvv2?|cvc2?|csc)(?: code| is|[ \t:=#]){1,4}(?P<secret>\d{3,4})(?!\w)")


def _cards(seen: Seen) -> Iterator[Span]:
    for found in _CARD.finditer(seen.text):
        digits = [int(letter) for letter in found[0] if letter.isdigit()]
        if 13 <= len(digits) <= 19 and _checks_out(digits):
            yield found.start(), found.end(), "card number"


def _checks_out(digits: list[int]) -> bool:
    """By Luhn's sum, which one of ten numbers has."""
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _card_codes(seen: Seen) -> Iterator[Span]:
    for found in _CARD_CODE.finditer(seen.folded):
        yield _span(found, "card code")


# --- elements, pairs, tables

# What may be blank is taken whole, or every way to part it would be tried.
_ELEMENT = re.compile(
    rf"<[\w.:-]{{0,40}}?(?:(?:{STRONG})|(?P<weak>{WEAK}))(?:[_.-]?(?:value|text|\d))?"
    r"(?:[ \t][^<>\n]{0,200})?(?<!/)>"
    r"[ \t\n]{0,20}+(?:<!\[cdata\[)?(?P<secret>[^<>\n\"\ufffc]{1,200}+)>?[ \t\n]{0,20}+<"
)
_KEYED = re.compile(
    rf"<[\w.:-]{{1,40}}[ \t](?:[^<>\n]{{0,100}}[ \t])?(?:key|name|id)=['\"][\w.:-]{{0,60}}?"
    rf"(?:(?:{STRONG})|(?P<weak>{WEAK}))"
    r"[\w-]{0,20}['\"][^<>\n]{0,100}(?<!/)>[ \t\n]{0,20}+(?P<secret>[^<>\n\"\ufffc]{1,200}+)[ \t\n]{0,20}+</"
)
_HTML_ROW = re.compile(
    rf">[ \t\n]{{0,20}}+(?:{STRONG})[ \t]{{0,3}}:?[ \t\n]{{0,20}}+</(?:td|th|dt|b|label|strong|span|li|p|div|em)>"
    r"[ \t\n]{0,20}+:?[ \t\n]{0,20}+(?:<(?:td|dd|span|code|div|p|b|em|tt)(?:[ \t][^<>\n]{0,100})?>[ \t\n]{0,20}+){0,2}"
    r"(?P<secret>[^<>\n\"\ufffc]{3,100}+)[ \t\n]{0,20}+<"
)
_PAIRED = re.compile(
    rf"(?<!\w)(?:name|key|id|type|label|variable|var)\\{{0,3}}['\"]?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:\\{{0,3}}['\"])?"
    rf"[\w.:-]{{0,60}}?(?:(?:{STRONG})|(?P<weak>{WEAK}))[\w-]{{0,20}}\\{{0,3}}['\"]?"
    r"[ \t,;\r\n|]{1,40}\\{0,3}['\"]?"
    r"(?:value|default|content|secret)\\{0,3}['\"]?[ \t]{0,4}[:=][ \t]{0,4}(?P<quote>\\{0,3}['\"])?"
    r"(?P<secret>[^\s'\"<>\\\ufffc]{1,200}(?:[ ][^\s'\"<>\\]{1,60}){0,8}(?=\\{0,3}['\"])|[^\s'\"<>\\\ufffc]{3,200})"
)
_RULE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t]*(?::?-{2,}:?)?[ \t|]*")
_PASSWORD_CELL = re.compile(rf"(?:[\w'.-]{{1,20}}[ \t]){{0,3}}(?:{STRONG})s?:?\Z")
_LINES = re.compile(r"(?:[^\n\\]|\\(?!n))+")  # in JSON, too
_AFTER = ".,;:!?)]}>"


def _elements(seen: Seen) -> Iterator[Span]:
    for pattern in (_ELEMENT, _KEYED, _HTML_ROW, _PAIRED):
        for found in pattern.finditer(seen.folded):
            begin, secret = _trimmed(found.start("secret"), seen.text[slice(*found.span("secret"))])
            is_weak = "weak" in pattern.groupindex and found["weak"]
            is_one = _is_weak(secret) if is_weak else _is_in_cell(secret)
            if is_one and not values.is_name(secret):
                yield begin, begin + len(secret), "password"


def _is_weak(secret: str) -> bool:
    return len(secret) >= 6 and " " not in secret and values.is_opaque(secret) and not values.is_none(secret)


def _is_in_cell(secret: str) -> bool:
    return len(secret) >= 3 and not (
        values.is_none(secret)
        or values.speaks_of_one(secret)
        or values.is_code(secret, secret)
        or (" " in secret and not values.is_phrase(secret, is_told=False, may_have_small=False))
    )


def _trimmed(begin: int, said: str) -> tuple[int, str]:
    """Without blanks around it, and the end of CDATA."""
    secret = said.rstrip().removesuffix("]]").rstrip()
    return begin + len(secret) - len(secret.lstrip()), secret.lstrip()


def _cells(seen: Seen) -> Iterator[Span]:
    """Those of tables beside one that says "password", or below it."""
    if "|" not in seen.text:
        return
    lines = [(found.start(), found[0]) for found in _LINES.finditer(seen.text)]
    columns: list[int] = []
    for (at, line), (_, after) in zip(lines, [*lines[1:], (0, "")], strict=True):
        cells = [] if _RULE.fullmatch(line) else _row(line)
        named = [n for n, (_, cell) in enumerate(cells) if _PASSWORD_CELL.match(cell.lower())]
        if _RULE.fullmatch(after):
            columns, cells = named, []
        columns = columns if "|" in line else []
        beside = [n + 1 for n in named] if line.lstrip("> \t").startswith("|") else []
        for n, (begin, cell) in enumerate(cells):
            if n in (columns or beside) and _is_in_cell(cell) and '"' not in cell:
                yield at + begin, at + begin + len(cell), "password"


def _row(line: str) -> list[tuple[int, str]]:
    """Where each cell's text begins, and the text."""
    if "|" not in line or len(line) > 2_000:
        return []
    found, at = [], 0
    for cell in line.split("|"):
        said = cell.strip(" \t\r*`_")
        found.append((at + (cell.find(said) if said else 0), said))
        at += len(cell) + 1
    return found


def _span(found: re.Match[str], kind: str = "password") -> Span:
    return found.start("secret"), found.end("secret"), kind


FINDERS = (
    Finder(("://", "ssh", "scp", "sftp", "rsync", "lftp", "mosh"), _addresses),
    Finder(("3", "4", "5", "6"), _cards),
    Finder(("cvv", "cvc", "csc"), _card_codes),
    Finder(_COMMAND_SIGNS, _of_commands),
    Finder(("-u", "--auth", "--proxy-user", "-a"), _basic),
    Finder(("authorization", "bearer", "basic"), _headers),
    Finder(("cookie", "sessid", "sessionid", "session", "connect.sid", "csrftoken"), _cookies),
    Finder(("=",), _signed, 16),
    Finder(SIGNS, lambda seen: chain(_elements(seen), _cells(seen))),
)
