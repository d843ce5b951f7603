"""Secrets that are one by their form: tokens that begin as their maker's do, keys in blocks, addresses that only those
may know who may use them.

The detectors of detect-secrets are among them; their patterns alone are used (nothing is verified over a network, no
settings of theirs are read, so that threads share nothing). Each pattern's reach is bounded, so that no text takes
longer than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from detect_secrets.plugins import (
    azure_storage_key,
    discord,
    github_token,
    gitlab_token,
    mailchimp,
    openai,
    pypi_token,
    sendgrid,
    square_oauth,
    stripe,
    telegram_token,
    twilio,
)
from detect_secrets.plugins.base import RegexBasedDetector

from memory.masking.secret_finding import Finder, Span
from memory.masking.seen_text import Seen

# Not among them: what looks at entropy alone (it takes commits and digests for secrets), what takes all of a line
# behind a keyword, what reaches as far as a line goes (npm, JSON web tokens, addresses), and what tries every way to
# part the blanks between a name and a value (IBM, SoftLayer): for these there are patterns of our own.
# Each with what stands in whatever it finds, in lower case; or with the length of a run without blanks.
_DETECTORS: tuple[tuple[RegexBasedDetector, str | int], ...] = (
    (azure_storage_key.AzureStorageKeyDetector(), "accountkey="),
    (discord.DiscordBotTokenDetector(), 59),
    (github_token.GitHubTokenDetector(), "ghp_ gho_ ghu_ ghs_ ghr_"),
    (
        gitlab_token.GitLabTokenDetector(),
        "glpat- gldt- glft- glsoat- glrt- gr1348941 glcbt- glimt- glptt- glagent- gloas-",
    ),
    (mailchimp.MailchimpDetector(), "-us"),
    (openai.OpenAIDetector(), "t3blbkfj"),
    (pypi_token.PypiTokenDetector(), "pypi-ag"),
    (sendgrid.SendGridDetector(), "sg."),
    (square_oauth.SquareOAuthDetector(), "sq0csp-"),
    (stripe.StripeDetector(), "k_live_"),
    (telegram_token.TelegramBotTokenDetector(), 44),
    (twilio.TwilioKeyDetector(), 34),
)
_WINDOW, _OVERLAP = 1_000, 200  # characters: how much of a line a detector sees at once
_LEAST = 12  # characters of a line in which there may be a token
_WHOLE = 20  # characters: a group of so many is the secret itself, behind the name that it is given
_SHORTEST = 14  # characters without a blank, at least, are in each
_REST = re.compile(r"[A-Za-z0-9_\-+/=]{0,400}")  # of a token of which a detector knows the beginning

_W = "[A-Za-z0-9_-]"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# What they are called, how they begin, and how they go on.
_BEGINNINGS = (
    ("Palimpsest key", "pal_ palt_", rf"[a-z0-9]{{12}}_{_W}{{16,200}}"),
    ("GitHub Token", "github_pat_", r"[A-Za-z0-9_]{20,255}"),
    ("GitLab Token", "glpat- gldt- glft- glsoat- glrt- glcbt- glptt- glffct-", r"[A-Za-z0-9_.-]{20,400}"),
    ("API key", "sk- rk-", rf"(?=[A-Za-z_-]{{0,190}}[0-9]){_W}{{20,400}}"),
    ("API key", "sk_ rk_", r"(?:[a-z]{2,10}_)?(?=[A-Za-z]{0,190}[0-9])[A-Za-z0-9]{20,400}"),
    (
        "API key",
        "sk-ant- sk-proj- sk-or- sk-svcacct- gsk_ csk- pplx- r8_ nvapi- tvly- pcsk_ xai- jina_",
        rf"{_W}{{20,400}}",
    ),
    (
        "API key",
        "lsv2_pt_ lsv2_sk_ PMAK- xkeysib- EZAK EZTK rdme_ lin_api_ lin_oauth_ tfp_ fio-u- aio_",
        rf"{_W}{{24,300}}",
    ),
    ("API key", "NRAK- NRII- NRJS- HRKU- CFPAT- tskey- pnu_ duffel_live_ duffel_test_ FLWSECK-", rf"{_W}{{18,200}}"),
    ("API key", "shippo_live_ shippo_test_ key- dapi", r"[0-9a-f]{32}"),
    ("API key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,40}"),
    ("API key", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. dt0c01. dt0s01.", r"[A-Za-z0-9_.-]{24,200}"),
    ("API key", "sdk- access-sandbox- access-development- access-production-", _UUID),
    ("npm Token", "npm_", r"[A-Za-z0-9]{36,100}"),
    ("PyPI Token", "pypi-", rf"{_W}{{50,400}}"),
    ("RubyGems Token", "rubygems_", r"[0-9a-f]{40,60}"),
    ("Docker Token", "dckr_pat_ dckr_oat_", rf"{_W}{{20,100}}"),
    ("Google API key", "AIza", rf"{_W}{{35}}"),
    ("Google Token", "ya29. GOCSPX- 1//0", r"[A-Za-z0-9_.-]{20,400}"),
    ("Hugging Face Token", "hf_ api_org_", r"[A-Za-z0-9]{30,60}"),
    ("Slack Token", "xapp-", r"[A-Za-z0-9-]{10,300}"),
    ("Slack Token", "xox", r"[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,300}"),
    ("webhook secret", "whsec_", r"[A-Za-z0-9+/=]{16,200}"),
    ("DigitalOcean Token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{20,100}"),
    ("Shopify Token", "shpat_ shpss_ shpca_ shppa_", r"[0-9A-Fa-f]{32,64}"),
    ("SendGrid API Key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("Square Token", "sq0atp- sq0csp-", rf"{_W}{{20,60}}"),
    ("Atlassian Token", "ATATT3 ATCTT3 ATBB", r"[A-Za-z0-9_=-]{28,400}"),
    ("Notion Token", "ntn_ secret_", r"[A-Za-z0-9]{40,60}"),
    ("Figma Token", "figd_ figdr_", rf"{_W}{{30,100}}"),
    ("Vault Token", "hvs. hvb. hvr.", rf"{_W}{{20,400}}"),
    ("Netlify Token", "nfp_", r"[A-Za-z0-9]{30,60}"),
    ("Fly.io Token", "fm1r_ fm2_ fo1_", r"[A-Za-z0-9+/=_-]{30,400}"),
    ("PlanetScale Token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[A-Za-z0-9_=.-]{30,70}"),
    ("Supabase Token", "sbp_ sb_secret_", rf"{_W}{{20,80}}"),
    ("Grafana Token", "glsa_ glc_", r"[A-Za-z0-9_+/=]{30,400}"),
    ("Sentry Token", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=-]{30,400}"),
    ("PayPal Token", "access_token$production$ access_token$sandbox$", r"[0-9a-z]{16}\$[0-9a-f]{32}"),
    ("Facebook Token", "EAACEdEose0cBA EAA", r"[A-Za-z0-9]{80,400}"),
    ("Dropbox Token", "sl.", rf"{_W}{{60,400}}"),
    ("Pulumi Token", "pul-", r"[0-9a-f]{40}"),
    ("Artifactory Token", "AKCp cmVmdGtu", r"[A-Za-z0-9]{50,80}"),
    ("Alibaba key", "LTAI AKID", r"[A-Za-z0-9]{16,40}"),
    ("AWS Access Key", "A3T ABIA ACCA AKIA ASIA", r"(?=[A-Z]{0,15}[0-9])[A-Z0-9]{16,17}(?![A-Za-z0-9])"),
    ("AWS Token", "ABSK FwoGZX IQoJb3", r"[A-Za-z0-9+/=]{80,2000}"),
    ("1Password Token", "ops_eyJ", r"[A-Za-z0-9+/=_-]{60,2000}"),
    ("CI Token", "CCIPAT_ CCIPRJ_ bkua_ squ_ sqp_ sqa_", r"[A-Za-z0-9_]{30,100}"),
    ("OpenShift Token", "sha256~", rf"{_W}{{43}}"),
    ("age secret key", "AGE-SECRET-KEY-", r"[0-9A-Za-z]{20,80}"),
    ("private key", "xprv yprv zprv", r"[1-9A-HJ-NP-Za-km-z]{90,120}"),
    ("password hash", "$apr1$ $2a$ $2b$ $2y$ $5$ $6$ $y$ $argon2i$ $argon2id$", r"[A-Za-z0-9./+=,$-]{30,200}"),
    (
        "webhook address",
        "https://discord.com/api/ https://discordapp.com/api/",
        r"(?:v\d{1,2}/)?webhooks/[0-9]{5,25}/[\w-]{10,200}",
    ),
    ("webhook address", "https://hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9/_-]{10,200}"),
    ("webhook address", "https://hooks.zapier.com/hooks/ https://maker.ifttt.com/trigger/", r"[A-Za-z0-9/_-]{10,200}"),
)
_BEFORE = r"(?<![A-Za-z0-9])"
# The same for those that begin in no one way.
_SHAPES = (
    ("JSON Web Token", "eyj", r"(?<![A-Za-z0-9_-])eyJ[\w=-]{5,2000}\.[\w=-]{5,4000}(?:\.[\w=-]{0,4000}){0,3}"),
    ("webhook address", ".webhook.office.com/", r"https://[\w.-]{1,60}\.webhook\.office\.com/[\w/@-]{20,400}"),
    ("Terraform Token", ".atlasv1.", rf"{_BEFORE}[A-Za-z0-9]{{14}}\.atlasv1\.[\w=-]{{40,100}}"),
    ("Airtable Token", "pat", rf"{_BEFORE}pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}"),
    ("Azure secret", "q~", r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    ("Azure account key", "accountkey= sharedaccesskey=", r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/=]{16,200}"),
    ("Private Key", "b3blbnnzac1rzxktdjea", r"b3BlbnNzaC1rZXktdjEA(?:[A-Za-z0-9+/=]|\\?[\r\n]{1,2}|\\n){0,8000}"),
    ("Private Key", "ibaakc badanbgkqhkig9w0baqefaasc", (
        r"(?<![A-Za-z0-9+/])MII[A-Za-z0-9+/]{3,5}(?:IBAAKC|BADANBgkqhkiG9w0BAQEFAASC)[A-Za-z0-9+/]{8}"
        r"(?:[A-Za-z0-9+/=]|\\?[\r\n]{1,2}|\\n){20,8000}"
    )),
)  # fmt: skip
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:[^\n]{0,200}")
_PEM_LINES = re.compile(r"(?:[ \t>]{0,8}[A-Za-z0-9+/=:,.\\ -]{0,100}\r?\n?){0,200}")  # of one that breaks off
_BODY = re.compile(r"[ \t>]{0,8}[A-Za-z0-9+/=]{16,100}[ \t]{0,8}\r?")  # a line of one that begins before the text


def _finders() -> Iterator[Finder]:
    yield Finder(("private key", "putty-user-key-file-", "private-mac:"), _pem)
    for kind, beginnings, tail in _BEGINNINGS:
        starts = "|".join(map(re.escape, beginnings.split()))
        yield _shape(kind, beginnings.lower(), f"{_BEFORE}(?:{starts}){tail}")
    for kind, signs, pattern in _SHAPES:
        yield _shape(kind, signs, pattern)
    for detector, sign in _DETECTORS:
        yield _detector(detector, sign)


def _shape(kind: str, signs: str, pattern: str) -> Finder:
    compiled = re.compile(pattern)

    def find(seen: Seen) -> Iterator[Span]:
        yield from ((found.start(), found.end(), kind) for found in compiled.finditer(seen.text))

    return Finder(tuple(signs.split()), find, _SHORTEST)


def _detector(detector: RegexBasedDetector, sign: str | int) -> Finder:
    def find(seen: Seen) -> Iterator[Span]:
        for begin, part in _windows(seen.text):
            yield from _detected(detector, seen.text, begin, part)

    if isinstance(sign, int):
        return Finder((), find, sign)
    return Finder(tuple(sign.split()), find, _SHORTEST)


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """A text in lines, and long lines in parts that overlap: detectors look at a part as often as it is long."""
    begin = 0
    for line in text.splitlines(keepends=True):
        if len(line) >= _LEAST:
            for at in range(0, max(len(line) - _OVERLAP, 1), _WINDOW - _OVERLAP):
                yield begin + at, line[at : at + _WINDOW]
        begin += len(line)


def _detected(detector: RegexBasedDetector, text: str, begin: int, part: str) -> Iterator[Span]:
    """Where a detector's pattern is met: all of it, for of some its groups are but the token's first letters."""
    for pattern in detector.denylist:
        at = 0
        while (found := pattern.search(part, at)) is not None:
            group = found.lastindex if found.lastindex and len(found[found.lastindex]) >= _WHOLE else 0
            rest = _REST.match(text, begin + found.end(group))
            yield begin + found.start(group), rest.end() if rest else begin + found.end(), detector.secret_type
            at = max(found.end(), at + 1)


def _pem(seen: Seen) -> Iterator[Span]:
    blocks = list(_blocks(seen.text))
    closed = {end for _, end in blocks}
    yield from ((begin, end, "Private Key") for begin, end in blocks)
    for found in _PEM_END.finditer(seen.text):
        begin = found.start() if found.end() in closed else _from_its_body(seen.text, found.start())
        if begin < found.start():
            yield begin, found.end(), "Private Key"


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    at, has_end = 0, True
    while (found := _PEM.search(text, at)) is not None:
        end = _PEM_END.search(text, found.end()) if has_end else None
        has_end = end is not None  # where there is none, there is none later
        lines = _PEM_LINES.match(text, found.end())
        at = end.end() if end else lines.end() if lines else found.end()
        yield found.start(), at


def _from_its_body(text: str, end: int) -> int:
    """Where a block begins whose first lines are not here."""
    begin = end
    for _ in range(200):
        line = text.rfind("\n", 0, max(begin - 1, 0)) + 1
        if begin == 0 or not _BODY.fullmatch(text, line, begin - 1):
            break
        begin = line
    return begin


FINDERS = tuple(_finders())
