"""Parse a search query. Every string is a valid query: text that is not an operator is taken literally."""

import re
from dataclasses import dataclass, field

# At most this many characters of a query are used. A longer query is pasted text, and its beginning is enough.
QUERY_LIMIT = 16_384
MOST = 16  # phrases and exclusions, 16 of each; more are ignored, because each is sought in every memory

_PIECE = re.compile(
    r"""
    (?P<minus> (?<!\S) - (?=["\w]) )?       # -word at the start of a word; a single dash or --flag is text
    (?: (?P<tag> (?<!\w) tag: (?=[^\s]) )?  # tag:NAME or tag:"NAME OF WORDS"
        (?: (?<!\w) " (?P<quoted> [^"]* ) " # "a phrase"; a quote after a word (5" pipe) or without an end is text
        |   (?P<plain> [^\s"]+ | " )
        )
    )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Query:
    """The parts of a query. `text` has the words for ranking. A memory must have all `phrases` and `tags`, and must not
    have anything from `without` and `without_tags`. `until` is the CPU time of the thread at which a search ends."""

    text: str
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    until: float | None = field(default=None, compare=False)

    @property
    def restricts(self) -> bool:
        return bool(self.phrases or self.without or self.tags or self.without_tags)


def parse(query: str) -> Query:
    """Parse `words`, `"quoted phrases"`, `-word`, `-"phrase"`, `tag:NAME` and `-tag:NAME`. Never raises an error."""
    parts: dict[str, list[str]] = {"text": [], "phrases": [], "without": [], "tags": [], "without_tags": []}
    for piece in _PIECE.finditer(query[:QUERY_LIMIT]):
        quoted, plain = piece["quoted"], piece["plain"]
        parts[_kind(piece)].append(plain if quoted is None else quoted)
    text = " ".join(parts.pop("text"))
    phrases, without, tags, without_tags = (tuple(dict.fromkeys(found))[:MOST] for found in parts.values())
    return Query(text, phrases, without, tags, without_tags)


def _kind(piece: re.Match[str]) -> str:
    if piece["tag"]:
        return "without_tags" if piece["minus"] else "tags"
    if piece["minus"]:
        return "without"
    return "text" if piece["quoted"] is None else "phrases"
