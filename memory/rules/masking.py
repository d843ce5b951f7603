"""Secrets are left out of what is recorded (seed 004, "Automatic Interaction Recording Process"; the setting
`capture_settings.sensitive_data_masking`).

Two ways find them: the detectors of detect-secrets, whose patterns alone are used (nothing is verified over a network,
no settings of theirs are read, so that threads share nothing), and patterns of our own for what people write in prose.
Each pattern's reach is bounded, so that no text takes longer than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from detect_secrets.plugins import (
    aws,
    azure_storage_key,
    discord,
    github_token,
    gitlab_token,
    mailchimp,
    openai,
    pypi_token,
    sendgrid,
    slack,
    square_oauth,
    stripe,
    telegram_token,
    twilio,
)

from memory.rules import named_secrets

Span = tuple[int, int, str]  # where it begins and ends, and what it is

# Not among them: what looks at entropy alone (it takes commits and digests for secrets), what takes all of a line
# behind a keyword, what reaches as far as a line goes (npm, JSON web tokens, addresses), and what tries every way to
# part the blanks between a name and a value (IBM, SoftLayer): for these there are patterns of our own.
_DETECTORS = (
    aws.AWSKeyDetector(),
    azure_storage_key.AzureStorageKeyDetector(),
    discord.DiscordBotTokenDetector(),
    github_token.GitHubTokenDetector(),
    gitlab_token.GitLabTokenDetector(),
    mailchimp.MailchimpDetector(),
    openai.OpenAIDetector(),
    pypi_token.PypiTokenDetector(),
    sendgrid.SendGridDetector(),
    slack.SlackDetector(),
    square_oauth.SquareOAuthDetector(),
    stripe.StripeDetector(),
    telegram_token.TelegramBotTokenDetector(),
    twilio.TwilioKeyDetector(),
)
_WINDOW, _OVERLAP = 1_000, 200  # characters: how much of a line a detector sees at once
_LEAST = 12  # characters of a line in which there may be a token
_WHOLE = 20  # characters: a group of so many is the secret itself, behind the name that it is given
_BEFORE = r"(?<![A-Za-z0-9])"
_SHAPES = {
    "Palimpsest key": re.compile(_BEFORE + r"palt?_[a-z0-9]{12}_[A-Za-z0-9_-]{16,200}"),
    "GitHub Token": re.compile(_BEFORE + r"github_pat_[A-Za-z0-9_]{20,200}"),
    "API key": re.compile(_BEFORE + r"(?:sk|rk)[-_](?=[A-Za-z_-]{0,190}[0-9])[A-Za-z0-9_-]{20,200}"),
    "npm Token": re.compile(_BEFORE + r"npm_[A-Za-z0-9]{36}"),
    "Google API key": re.compile(_BEFORE + r"AIza[0-9A-Za-z_-]{35}"),
    "Hugging Face Token": re.compile(_BEFORE + r"hf_[A-Za-z0-9]{30,60}"),
    "Slack Token": re.compile(_BEFORE + r"xox[a-z]-[A-Za-z0-9-]{10,200}|" + _BEFORE + r"xapp-[A-Za-z0-9-]{10,200}"),
    "webhook secret": re.compile(_BEFORE + r"whsec_[A-Za-z0-9+/=]{16,200}"),
    "JSON Web Token": re.compile(
        r"(?<![A-Za-z0-9_=-])eyJ[A-Za-z0-9_=-]{5,2000}\.[A-Za-z0-9_=-]{5,4000}(?:\.[A-Za-z0-9_=-]{0,2000})?"
    ),
}
_REST = re.compile(r"[A-Za-z0-9_\-+/=]{0,400}")  # of a token of which a detector knows the beginning
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:[^\n]{0,200}")
_PEM_LINES = re.compile(r"(?:[ \t>]{0,8}[A-Za-z0-9+/=:,.\\ -]{0,100}\r?\n?){0,200}")  # of one that breaks off
PLACE = re.compile(r"\[masked: [^\]\n]{1,60}\]")
_SHORT = 8  # characters: a shorter secret is found again as a word of its own alone
_AGAIN = 200  # secrets of one text that are looked for elsewhere in it


def masked(text: str) -> tuple[str, int]:
    """The text with `[masked: KIND]` for each secret, and how many there were."""
    [found], count = masked_together([text])
    return found, count


def masked_together(texts: Sequence[str]) -> tuple[list[str], int]:
    """Texts of one talk: what is found to be a secret in one of them is masked in all."""
    found = _found_together(texts)
    return [_replaced(text, spans) for text, spans in zip(texts, found, strict=True)], sum(map(len, found))


def taken_out(texts: Sequence[str]) -> list[tuple[str, str]]:
    """What stands in the place of each secret of these texts, and the secret; what stood there before, as itself."""
    told = []
    for text, spans in zip(texts, _found_together(texts), strict=True):
        places = [(begin, _place(kind), text[begin:end]) for begin, end, kind in spans]
        places += [(found.start(), found[0], found[0]) for found in PLACE.finditer(text)]
        told += [(place, secret) for _, place, secret in sorted(places)]
    return told


def _found_together(texts: Sequence[str]) -> list[list[Span]]:
    found = [list(_spans(text)) for text in texts]
    secrets: dict[str, str] = {}
    for text, spans in zip(texts, found, strict=True):
        secrets |= {text[begin:end]: kind for begin, end, kind in spans}
    known = dict(list(secrets.items())[:_AGAIN])
    return [_apart([*spans, *_again(text, known)]) for text, spans in zip(texts, found, strict=True)]


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Of spans that overlap one, under the name of the first."""
    apart: list[Span] = []
    for begin, end, kind in sorted(spans):
        if apart and begin < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        else:
            apart.append((begin, end, kind))
    return apart


def _replaced(text: str, spans: Iterable[Span]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end, kind in spans:
        parts += [text[at:begin], _place(kind)]
        at = end
    return "".join([*parts, text[at:]])


def _place(kind: str) -> str:
    return f"[masked: {kind}]"


def _again(text: str, secrets: dict[str, str]) -> Iterator[Span]:
    for secret, kind in secrets.items():
        if len(secret) >= _SHORT:
            begin = text.find(secret)
            while begin >= 0:
                yield begin, begin + len(secret), kind
                begin = text.find(secret, begin + len(secret))
        else:
            word = re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)")
            yield from ((found.start(), found.end(), kind) for found in word.finditer(text))


# --- where they are


def _spans(text: str) -> Iterator[Span]:
    yield from _pem(text)
    for kind, pattern in _SHAPES.items():
        yield from ((found.start(), found.end(), kind) for found in pattern.finditer(text))
    for begin, part in _windows(text):
        yield from _detected(text, begin, part)
    yield from named_secrets.spans(text)


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """A text in lines, and long lines in parts that overlap: detectors look at a part as often as it is long."""
    begin = 0
    for line in text.splitlines(keepends=True):
        if len(line) >= _LEAST:
            for at in range(0, max(len(line) - _OVERLAP, 1), _WINDOW - _OVERLAP):
                yield begin + at, line[at : at + _WINDOW]
        begin += len(line)


def _detected(text: str, begin: int, part: str) -> Iterator[Span]:
    """Where a detector's pattern is met: all of it, for of some its groups are but the token's first letters."""
    for detector in _DETECTORS:
        for pattern in detector.denylist:
            at = 0
            while (found := pattern.search(part, at)) is not None:
                group = found.lastindex if found.lastindex and len(found[found.lastindex]) >= _WHOLE else 0
                rest = _REST.match(text, begin + found.end(group))
                yield begin + found.start(group), rest.end() if rest else begin + found.end(), detector.secret_type
                at = max(found.end(), at + 1)


def _pem(text: str) -> Iterator[Span]:
    at, has_end = 0, True
    while (found := _PEM.search(text, at)) is not None:
        ends = _PEM_END.search(text, found.end()) if has_end else None
        has_end = ends is not None  # where there is none, there is none later
        lines = _PEM_LINES.match(text, found.end())
        at = ends.end() if ends else lines.end() if lines else found.end()
        yield found.start(), at, "Private Key"
