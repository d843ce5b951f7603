"""Find secrets by their form: keys and tokens of known services, private-key blocks, `Authorization` headers and
passwords in URLs.

Many patterns come from the plugins of detect-secrets. No other part of this library is used: no settings, no files, no
network. Every pattern matches only a limited number of characters, so the time is linear.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector

from memory.masking.pairs import HIDDEN, Span, is_opaque, is_placeholder

# The plugins that are not used. Public IP addresses are not secrets. Two plugins match ordinary words (`keyJobs.run`).
# The plugin for npm matches the rest of the line. Four plugins are slow on long series of spaces. The patterns below
# and `pairs` find the same secrets.
_UNUSED = {
    *("ArtifactoryDetector", "BasicAuthDetector", "CloudantDetector", "IbmCloudIamDetector", "IbmCosHmacDetector"),
    *("IPPublicDetector", "JwtTokenDetector", "NpmDetector", "PrivateKeyDetector", "SoftlayerDetector"),
}
_CLASSES: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
_PLUGINS = [
    plugin()
    for _, plugin in sorted(_CLASSES.items())
    if issubclass(plugin, RegexBasedDetector) and plugin.__name__ not in _UNUSED
]
_WINDOW, _OVERLAP = 600, 150  # the characters of a part of a text, and the characters that two parts have in common
_RUN = re.compile(r"\S{14}")  # every token has at least this many characters without a space
_REST = re.compile(r"[A-Za-z0-9_+/=-]*")  # the rest of a token, if a plugin matches only its beginning
_WHOLE = 20  # characters; a shorter group is only the prefix of the secret

# Prefixes of tokens that no plugin knows, or that are longer today than a plugin expects.
_PREFIXES = (  # noqa: SIM905  a list takes a line for each
    "pal_ palt_ github_pat_ glffct- sk- rk- sk_ rk_ gsk_ csk- pplx- r8_ nvapi- tvly- pcsk_ xai- jina_ lsv2_ PMAK- "
    "xkeysib- EZAK EZTK lin_api_ lin_oauth_ NRAK- HRKU- tskey- shippo_live_ dapi dp.pt. dp.st. dt0c01. npm_ pypi- "
    "rubygems_ dckr_pat_ dckr_oat_ AIza ya29. GOCSPX- 1//0 hf_ api_org_ xapp- xoxb- xoxp- xoxe. xoxe- xoxa- xoxc- "
    "xoxd- xoxs- whsec_ dop_v1_ doo_v1_ dor_v1_ shpat_ shpss_ shpca_ shppa_ SG. sq0atp- sq0csp- ATATT3 ATCTT3 ATBB "
    "ntn_ secret_ figd_ hvs. hvb. nfp_ fm1r_ fm2_ fo1_ pscale_tkn_ pscale_pw_ sbp_ sb_secret_ glsa_ glc_ sntrys_ "
    "sntryu_ EAACEdEose0cBA pul- AKCp cmVmdGtu LTAI ABSK FwoGZX IQoJb3 ops_eyJ CCIPAT_ bkua_ squ_ sqp_ "
    "sha256~ AGE-SECRET-KEY- xprv AccountKey= SharedAccessKey= "
    "https://discord.com/api/webhooks/ https://discordapp.com/api/webhooks/ https://hooks.slack.com/ "
    "https://hooks.zapier.com/hooks/"
).split()
_T = "[A-Za-z0-9_.=+/~-]"  # a character of a token
_BEGINS = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_KEY_BEGIN = r"(?:-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d:)"
_KEY_END = r"(?:-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC:[^\n]{0,200})"
_JSON = r"\"\s{0,9}[,:}\]]"  # the end of a JSON string; a key block in the string ends here, too
_BREAK = r"(?:\s|>|\\[nr]){1,20}"
_KEY_LINES = (  # a key block without an end
    rf"(?:{_BREAK}(?:[A-Z][\w-]{{2,20}}: [^\n\\\"]{{1,80}}|[A-Za-z0-9+/=]{{16,}}))*"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{1,15}}\Z)?"
)
_FORMS = (
    ("Private Key", rf"{_KEY_BEGIN}(?:(?:(?!{_KEY_BEGIN}|{_JSON})[^{HIDDEN}]){{0,20000}}?{_KEY_END}|{_KEY_LINES})"),
    (
        "API key",
        rf"{_BEGINS}(?:{'|'.join(map(re.escape, _PREFIXES))})(?=[A-Za-z_.=+/~-]{{0,200}}\d)"
        rf"(?={_T}{{40}}|{_T}{{0,60}}?[A-Za-z0-9]{{12}}){_T}{{16,2000}}",
    ),
    (
        "Private Key",  # a block without its first line
        r"(?<![A-Za-z0-9+/])(?:b3BlbnNzaC1rZXktdjEA|MII[A-Za-z0-9+/]{3,5}(?:IBAAKC|BADANBgkqhkiG9w0BAQEFAASC))"
        rf"[A-Za-z0-9+/=]*{_KEY_LINES}",
    ),
    ("JSON Web Token", r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[\w-]{5,2000}={0,2}\.[\w=-]{5,4000}(?:\.[\w=-]{0,4000}){0,3}"),
    ("Azure secret", r"(?:(?<![\w~.-])|(?<=\\[nrt]))[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    ("password hash", r"\$(?:apr1|2[aby]|[56y]|argon2id?)\$[A-Za-z0-9./+=,$-]{30,200}"),
)
_PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in _FORMS]

_HEADER = re.compile(
    r"(?<!\w)(?:authorization(?:\\{0,3}['\"])?[ \t]{0,3}[:=][ \t]{0,3}(?:\\{0,3}['\"])?(?:[a-z]{1,20}[ \t]{1,3})?"
    r"|bearer[ \t]{1,3})(?P<secret>[a-z0-9._~+/-]{6,4000}={0,2})(?![\w=])",
    re.IGNORECASE,
)
_URLS = [
    re.compile(
        r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,100}:"
        rf"(?P<secret>[^\s/\"`<>{HIDDEN}]{{1,200}})@(?=[\w\[{{$])"
    ),
    re.compile(r"(?<![A-Za-z])https?://(?P<secret>(?=[a-zA-Z_-]{0,200}\d)[A-Za-z0-9_-]{16,200})@(?=\w)"),
]


def find(view: str) -> Iterator[Span]:
    for kind, pattern in _PATTERNS:
        for found in pattern.finditer(view):
            yield found.start(), found.start() + len(found[0].rstrip(".")), kind
    for found in _HEADER.finditer(view):
        if is_opaque(found["secret"].rstrip("=.")) or found["secret"].endswith("="):
            yield *found.span("secret"), "authorization header"
    for found in chain.from_iterable(pattern.finditer(view) for pattern in _URLS):
        if not is_placeholder(found["secret"]):
            yield *found.span("secret"), "password in a URL"
    if _RUN.search(view):
        yield from chain.from_iterable(_find_by(plugin, view) for plugin in _PLUGINS)


def _find_by(plugin: RegexBasedDetector, view: str) -> Iterator[Span]:
    """Yield the secrets that a plugin finds. The plugin gets a long text in overlapping parts, because some patterns
    are slow on long texts."""
    for pattern in plugin.denylist:
        done = 0
        for start in range(0, max(len(view) - _OVERLAP, 1), _WINDOW - _OVERLAP):
            for found in pattern.finditer(view[start : start + _WINDOW]):
                group = found.lastindex if found.lastindex and len(found[found.lastindex]) >= _WHOLE else 0
                begin, end = start + found.start(group), start + found.end(group)
                if end > done:
                    rest = _REST.match(view, end)
                    done = rest.end() if rest else end
                    yield begin, done, plugin.secret_type
