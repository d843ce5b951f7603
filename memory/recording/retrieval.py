"""Find the memories that answer a question, for the agent's prompt.

The search finds only memories that the agent sees in one project: the memories of this project, common memories and
private memories. A common or private memory of another project is visible only if the setting `share_across_projects`
of its category is on. If the caller gives no project, the default project is used.
"""

import calendar
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any

from django.utils import timezone

from memory.errors import Invalid
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import COMMON, PRIVATE, SCOPES, UNREFINED
from memory.policy.projects import seen_from
from memory.policy.tokens import count
from memory.policy.validation import checked_project
from memory.recording import usage
from memory.search import context, reading
from memory.search.excerpts import NOTHING, excerpt
from memory.search.own_words import without_empty_fields
from memory.search.query import Query, parse
from memory.search.selection import Filters
from memory.silo.silo import Opened, Read

# --- times in a question


Period = tuple[datetime, datetime]  # the start, and the end (not included)

_MONTHS = [name.lower() for name in calendar.month_name[1:]]
_YEAR = r"(?P<year>(?:19|20)\d\d)(?!\d)"
_DAY = r"[0-3]?\d(?:st|nd|rd|th)?"
# "may" and "march" are also verbs.
_NAMES = "|".join(f"(?-i:{name.capitalize()})" if name in ("may", "march") else name for name in _MONTHS)
_ISO = re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?(?!\d)")
_MONTH = re.compile(
    rf"(?<=[\s(,])(?:(?P<before>{_DAY})\s(?:of\s)?)?(?P<name>{_NAMES})\b(?:\s(?P<after>{_DAY})\b(?!\d))?(?:,?\s{_YEAR})?",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"(?<![\d.,:/-]){_YEAR}(?![.,:/-]\d)")
_RELATIVE = re.compile(r"\b(?:(today|yesterday)|(this|last) (week|month|year))\b", re.IGNORECASE)
_LATER = timedelta(days=7)  # events are often recorded some days later
_YEARS = 50  # a month without a year is searched in the current year and in this number of years before it
MOST_PERIODS = 500  # each is compared with each of the best memories
_DAYS = {"week": 7, "month": 31, "year": 366}


def periods(question: str, now: datetime) -> list[Period]:
    """Return the periods, in UTC, that a question mentions. If the question names a month without a year, the periods
    are that month in the current year and in each of the fifty years before. Dates that do not exist are ignored. Only
    the first MOST_PERIODS count."""
    text = f" {question}"
    return list(dict.fromkeys(islice(chain(_calendar(text, now), _relative(text, now)), MOST_PERIODS)))


def _calendar(text: str, now: datetime) -> Iterator[Period]:
    for each in _ISO.finditer(text):
        yield from _of(int(each["year"]), int(each["month"]), int(each["day"] or 0))
    for each in _MONTH.finditer(text):
        month = _MONTHS.index(each["name"].lower()) + 1
        day = int(re.sub(r"\D", "", each["before"] or each["after"] or "0"))
        for year in [int(each["year"])] if each["year"] else range(now.year - _YEARS, now.year + 1):
            yield from _of(year, month, day)
    for each in _ALONE.finditer(_MONTH.sub(" ", _ISO.sub(" ", text))):
        yield datetime(int(each["year"]), 1, 1, tzinfo=UTC), datetime(int(each["year"]) + 1, 1, 1, tzinfo=UTC)


def _of(year: int, month: int, day: int) -> Iterator[Period]:
    try:
        begin = datetime(year, month, day or 1, tzinfo=UTC)
    except ValueError:
        return
    end = begin + timedelta(days=1) if day else (begin + timedelta(days=31)).replace(day=1)
    yield begin, end + _LATER


def _relative(text: str, now: datetime) -> Iterator[Period]:
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day, which, length in _RELATIVE.findall(text):
        if day:
            begin = today - timedelta(days=day.lower() == "yesterday")
            yield begin, begin + timedelta(days=1)
        else:
            span = timedelta(days=_DAYS[length.lower()])
            yield today - span * (1 + (which.lower() == "last")), today + timedelta(days=1)


# --- retrieval


MOST_FOR_RECENCY = 0.1  # highest bonus: for a memory of today
HALF_LIFE = timedelta(days=90)  # the time after which the bonus is halved
FOR_A_DATE = 1.0  # bonus for a memory from a period that the question mentions
_SWITCHES = {
    "topic": "search.enable_topic_search",
    "session": "search.enable_session_search",
    "user_interaction": "search.include_interaction_history",
}


@dataclass(frozen=True, slots=True, repr=False)
class Retrieved:
    """The memories that were found, best first. `times` maps the number of each memory to how often a search returned
    it. `left_out` counts the matches that did not fit in `max_tokens`. If `searched_since` is not None, earlier
    memories beneath were not searched. `by_meaning` says whether memories with a similar meaning were searched for."""

    reads: tuple[Read, ...]
    times: Mapping[int, int]
    tokens: int = 0
    left_out: int = 0
    left_out_tokens: int = 0
    searched_since: datetime | None = None
    by_meaning: bool = False

    @property
    def block(self) -> str:
        """The found memories as text for a prompt. The text is "" if no memory was found."""
        if not self.reads:
            return ""
        lines = [_line(read) for read in self.reads if not (read.is_excerpt and read.opened.content == NOTHING)]
        parts = ["\n".join(["# What you remember of this", *lines])]
        if self.left_out:
            parts.append(context.left_out(self.left_out, self.left_out_tokens))
        return "\n\n".join(parts) + "\n"


def retrieve(
    agent: Agent,
    query: str,
    *,
    project: str = "",
    category: str = "",
    limit: int | None = None,
    tags: Sequence[str] = (),
    max_tokens: int | None = None,
    duplicates: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> Retrieved:
    """Search the memories that the agent sees in a project. Return the best results first, and count each returned
    memory as recalled. Only the agent's side may call this. With `category`, only its memories are found. Memories of
    the categories credentials, keys and sensitive are found only in this way.

    The setting `search.max_results` is the maximum and the default of `limit`. `max_tokens` is the maximum number of
    tokens of all returned memories together. A memory that does not fit is left out. Smaller memories after it can
    still be returned. Each superseded memory is returned with its successor, of which the result may have only an
    excerpt. With `duplicates`, memories that repeat others of their lineage are returned, too.
    Raises Invalid, MemoryDisabled.
    """
    switches.require_on(agent)
    now = now or timezone.now()
    rules = switches.rules_of(agent)
    parsed = _allowed_query(rules, query, tags)
    most = _most(rules, limit)
    if max_tokens is not None and max_tokens < 0:
        raise Invalid("max_tokens", "must be 0 or more")
    filters = Filters(
        tags=tags,
        category=category or None,
        without=left_out(rules) | UNREFINED - {category},
        projects=seen_from(rules, checked_project(project, is_known=True)),
        with_notices=False,
        since=since,
        until=until,
    )
    options: Any = {"filters": filters, "limit": most, "boost": _favour(query, now), "repetitions": duplicates}
    found = reading.search(agent, parsed, **options) if parsed else reading.Found()
    reads = found if max_tokens is None else _Filling(found, max_tokens, query, agent.language).reads()
    times = usage.note(agent, [read.memory.number for read in reads], now) if reads else {}
    here = {read.memory.number for read in reads}
    unfit = [_tokens(read) for read in found if read.is_match and read.memory.number not in here]
    tokens = sum(map(_tokens, reads))
    return Retrieved(tuple(reads), times, tokens, len(unfit), sum(unfit), found.searched_since, found.by_meaning)


def recency(origin: datetime, *, now: datetime) -> float:
    """Return the factor for a search score. The factor is 1.1 for a memory from today, and 1.05 for a memory from 90
    days ago. For older memories, it is closer to 1."""
    age = max(now - origin, timedelta())
    return 1.0 + MOST_FOR_RECENCY * float(0.5 ** (age / HALF_LIFE))


def _favour(query: str, now: datetime) -> Callable[[datetime], float]:
    """Return a function that takes a memory's date and returns the factor for its search score. New memories get a
    higher factor. If the question mentions a period, only the memories from this period get a higher factor."""
    if named := periods(query, now):
        return lambda origin: 1.0 + FOR_A_DATE * any(begin <= origin < end for begin, end in named)
    return partial(recency, now=now)


# --- visible categories


def left_out(rules: Mapping[str, Any]) -> frozenset[str]:
    """Return the categories that the settings exclude from the search. The search also skips categories that are off,
    but this function does not look for them."""
    off = {name for name, switch in _SWITCHES.items() if not settings_document.is_on(rules, *switch.split("."))}
    for scope, switch in ((COMMON, "common_memory_enabled"), (PRIVATE, "private_memory_enabled")):
        if not settings_document.is_on(rules, "project_support", switch):
            off |= {name for name, where in SCOPES.items() if where == scope}
    return frozenset(off)


# --- the query


def _allowed_query(rules: Mapping[str, Any], query: str, tags: Sequence[str]) -> Query | None:
    """Return the query without the kinds of search that are off in the settings. Return None if text search is off and
    there are no tags to search for. Raises Invalid."""
    parsed, is_on = parse(query), partial(settings_document.is_on, rules, "search")
    if not is_on("enable_tag_search"):
        if tags:
            raise Invalid("tags", "cannot be used: memory_rules.search.enable_tag_search is off")
        parsed = replace(parsed, text=" ".join([parsed.text, *parsed.tags]).strip(), tags=(), without_tags=())
    if not is_on("enable_full_text"):
        parsed = Query("", (), (), parsed.tags, parsed.without_tags)
        return parsed if tags or parsed.tags else None
    return parsed


def _most(rules: Mapping[str, Any], limit: int | None) -> int:
    allowed: int = settings_document.value(rules, "memory_rules.search.max_results")
    if limit is not None and limit < 1:
        raise Invalid("limit", "must be 1 or more")
    return allowed if limit is None else min(limit, allowed)


# --- the result


class _Filling:
    """Fills `room` tokens with results, best first.

    Each superseded memory needs its successor. At first, the successor has only the excerpt that concerns the memory.
    If room is left at the end, successors are returned whole.
    """

    def __init__(self, found: Sequence[Read], room: int, query: str, language: str) -> None:
        self._found = {read.memory.number: read for read in found}
        self._room, self._query, self._language = room, query, language
        self._kept: dict[int, Read] = {}
        self._superseded: dict[int, list[str]] = {}  # successor → the kept memories that it superseded

    def reads(self) -> list[Read]:
        for read in self._found.values():
            if read.is_match and (successor := self._found.get(read.successor or 0)):
                others = [*self._superseded.get(successor.memory.number, ()), read.opened.content]
                if self._keep(self._excerpt(successor, others), read):
                    self._superseded[successor.memory.number] = others
            elif read.is_match:
                self._keep(read)
        for number in self._superseded:
            self._keep(self._found[number])
        return list(self._kept.values())

    def _excerpt(self, successor: Read, others: Sequence[str]) -> Read:
        if (kept := self._kept.get(successor.memory.number)) and not kept.is_excerpt:
            return kept
        text = excerpt(_text(successor), others, self._query, self._language)
        return replace(successor, opened=Opened(text, successor.opened.tags), is_excerpt=True)

    def _keep(self, *reads: Read) -> bool:
        """Keep these memories, if there is room for all of them."""
        new = {read.memory.number: read for read in reads}
        weight = sum(map(_tokens, new.values())) - sum(_tokens(self._kept[n]) for n in new if n in self._kept)
        if weight > self._room:
            return False
        self._room -= weight
        self._kept |= new
        return True


def _line(read: Read) -> str:
    """Return the line for a memory in the result, as in the agent's context. The line of a superseded memory says that
    it is older than the memory before it."""
    return context.line(read.memory, replace(read.opened, content=_text(read)), "older: " if read.successor else "")


def _text(read: Read) -> str:
    return without_empty_fields(read.opened.content, read.memory.category)


def _tokens(read: Read) -> int:
    """Return the number of tokens of the memory's line in the result."""
    text = _text(read)
    return read.memory.tokens if text == read.opened.content and not read.is_excerpt else count(text)
