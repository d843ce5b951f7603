"""`memory_rules cleanup`: what might be discarded, listed by number, and decided by the agent's side alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from audit.trail import Actor
from config.commandline import Task, is_attended, is_shown
from config.errors import FAILED
from config.wording import several
from memory.access.authentication import is_key_of, prefix_of
from memory.errors import Invalid, KeyRejected
from memory.management.rules import Deed, asking
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import NAMES, SCOPES
from memory.recording import cleanup, overdue
from memory.search import reading

SHOWN = 200  # characters of each
_SUCH_AS = {"keep": "3,5@12", "discard": "3@390,5@12"}
_ABOUT = (
    "These memories are older than is suggested for their category. That is a suggestion: none is discarded unless you "
    "say so of it, and what is discarded can be brought back."
)
_QUESTION = "Discard it, keep it, skip it, or quit? [d/k/S/q] "
_ANSWERS = {"": "s"} | {said: word[0] for word in ("discard", "keep", "skip", "quit") for said in (word, word[0])}


def _arguments(parser: CommandParser) -> None:
    parser.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=f"this category alone: {NAMES}")
    parser.add_argument(
        "--discard",
        metavar="NUMBERS",
        help="3@390,5@12: discard these, as the list has them; needs PALIMPSEST_AGENT_KEY",
    )
    parser.add_argument("--keep", metavar="NUMBERS", help="keep these, which are not suggested again for a while")
    parser.add_argument("--dry-run", action="store_true", help="decide nothing")
    parser.add_argument("--json", action="store_true", help="one line of JSON; nothing is asked")


def _clean(
    task: Task,
    agent: Agent,
    *,
    category: str | None,
    discard: str | None,
    keep: str | None,
    dry_run: bool,
    json: bool,
    **_: Any,
) -> None:
    key = os.environ.get("PALIMPSEST_AGENT_KEY", "")
    is_agents = bool(key) and is_key_of(agent, key)
    seen = {"keep": _seen("keep", keep), "discard": _seen("discard", discard)}
    chosen = {field: [number for number, _ in each] for field, each in seen.items()}
    versions = {number: version for each in seen.values() for number, version in each if version}
    is_said = _is_any(chosen)
    if is_said and not is_agents:
        raise KeyRejected("The agent's side alone decides: set PALIMPSEST_AGENT_KEY to its valid key.")
    review = asking.done(task, agent, partial(cleanup.review, category=category, is_read=is_agents))
    if review is None:
        return
    if not (is_said or dry_run or json) and is_agents and is_attended() and _is_interactive(agent):
        chosen = _asked(task, agent, review, versions)
        is_said = _is_any(chosen)
    elif json and (not is_said or dry_run):
        _list_as_json(task, review)
    elif not is_said or dry_run:
        _list(task, review, _said(agent, review, {}) if is_agents and is_attended() and is_shown() else {})
    if not (is_said or json):
        _tell_what_is_off(task, agent, category)
    if not is_said or dry_run:
        task.say("Nothing was decided.")
        return
    actor = Actor.agent(prefix_of(key))
    done = cleanup.decide(agent, chosen["keep"], chosen["discard"], actor, expect=versions)
    if json:
        task.result({"kept": list(done.kept), "discarded": list(done.discarded), "entry": done.seq})
    entry = "" if done.seq is None else f", as entry {done.seq}"
    task.say(f"{len(done.kept):,} kept, {several(len(done.discarded), 'memory', 'memories')} discarded{entry}.")
    if done.seq is not None:
        brought = "it" if len(done.discarded) == 1 else "them"
        task.say(f"manage.py rollback {agent.label} --entry {done.seq} brings {brought} back.")


def _is_any(chosen: dict[str, list[int]]) -> bool:
    return bool(chosen["keep"] or chosen["discard"])


def _seen(field: str, text: str | None) -> list[tuple[int, int]]:
    """Numbers, and the versions at which they were listed, 0 where none is said. Raises Invalid. There is no word for
    all of them: each is named, and what is to be discarded as it was seen."""
    parts = [part.strip().partition("@") for part in text.split(",")] if text is not None else []
    for number, at, version in parts:
        if not (_is_number(number) and (_is_number(version) if at or field == "discard" else True)):
            raise Invalid(field, f"must be memories as the list has them, such as {_SUCH_AS[field]}")
    return [(int(number), int(version or 0)) for number, _, version in parts]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _is_interactive(agent: Agent) -> bool:
    return settings_document.is_on(switches.rules_of(agent), "cleanup_guidance", "interactive_cleanup")


def _list_as_json(task: Task, review: cleanup.Review) -> None:
    told = [each.as_record() for each in review.suggestions]
    task.result({"suggestions": told, "more": review.more, "kept_back": review.kept_back})


def _list(task: Task, review: cleanup.Review, said: Mapping[int, str]) -> None:
    _introduce(task, review)
    for each in review.suggestions:
        _tell(task, each, said)
    _tell_rest(task, review)


def _said(agent: Agent, review: cleanup.Review, versions: dict[int, int]) -> dict[int, str]:
    """How each begins, for the agent's side alone; `versions` takes those at which they were read."""
    reads = reading.several(agent, [each.number for each in review.suggestions]) if review.suggestions else []
    versions |= {read.memory.number: read.memory.version for read in reads}
    return {read.memory.number: _beginning(read.opened.content) for read in reads}


def _tell(task: Task, each: cleanup.Suggestion, said: Mapping[int, str]) -> None:
    task.tell(_line(each))
    if each.number in said:
        task.tell(f"            {said[each.number]}")


def _introduce(task: Task, review: cleanup.Review) -> None:
    if review.suggestions:
        task.say(_ABOUT)


def _line(each: cleanup.Suggestion) -> str:
    where = f"{each.category} of {each.project}" if each.project else each.category
    seen = f"{each.number}@{each.version}"
    importance = f"{each.importance.name.lower()} importance"
    return f"{seen:>10}  {where}, {importance}, {several(each.tokens, 'token')}: {each.reason}"


def _tell_rest(task: Task, review: cleanup.Review) -> None:
    if not review.suggestions:
        task.say("Nothing is suggested.")
    if review.more:
        task.say(f"{review.more:,} more would be suggested after these.")
    if review.kept_back:
        are = "is" if review.kept_back == 1 else "are"
        task.say(f"{review.kept_back:,} {are} older than suggested, too, and held back as important.")


def _tell_what_is_off(task: Task, agent: Agent, category: str | None) -> None:
    """Why nothing is suggested that somebody may look for."""
    rules, off = switches.rules_of(agent), switches.closed(agent)
    for name in ("enabled", "suggest_cleanup_actions"):
        if not settings_document.is_on(rules, "cleanup_guidance", name):
            task.say(f"Nothing is suggested while memory_rules.cleanup_guidance.{name} is off.")
            return
    shut = [name for name in SCOPES if name in off and category in (None, name)]
    if shut:
        is_off = "is" if len(shut) == 1 else "are"
        task.say(f"{', '.join(shut)} {is_off} switched off: nothing of that is suggested.")
    elif category is not None and category not in overdue.retention(agent):
        task.say(f"Nothing of {category} is ever suggested: its suggested_retention_days are 0.")


# --- asked, one by one


def _asked(task: Task, agent: Agent, review: cleanup.Review, versions: dict[int, int]) -> dict[str, list[int]]:
    """What a person who has the agent's key says of each. What was said before quitting counts; without an end of it
    (Ctrl-C), nothing does."""
    chosen: dict[str, list[int]] = {"keep": [], "discard": []}
    said = _said(agent, review, versions)
    _introduce(task, review)
    for each in review.suggestions:
        _tell(task, each, said)
        task.stdout.flush()
        answer = _answer(task)
        if answer == "q":
            break
        if answer in ("d", "k"):
            chosen["discard" if answer == "d" else "keep"].append(each.number)
    _tell_rest(task, review)
    return chosen


def _answer(task: Task) -> str:
    """Its first letter; whatever is no answer is asked again, and where nobody answers any more it is quitting."""
    while True:
        task.stderr.write(_QUESTION, lambda plain: plain, ending="")
        sys.stderr.flush()
        try:
            said = input().strip().lower()
        except EOFError:
            return "q"
        except KeyboardInterrupt:
            task.stderr.write("")  # below the question
            task.fail("interrupted; nothing was decided, and what was answered before is forgotten", FAILED)
        if said in _ANSWERS:
            return _ANSWERS[said]


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


_TOLD = "show what might be discarded; with the agent's key, decide it one by one"
DEEDS = (Deed("cleanup", _TOLD, _arguments, _clean),)
