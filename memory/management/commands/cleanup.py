"""Suggest memories to discard, and discard the memories that the agent's side chooses."""

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import is_shown
from config.wording import several
from memory.errors import Invalid
from memory.management.agent_command import KEY, AgentCommand, agents_side, has_agents_key
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import NAMES, SCOPES
from memory.recording import automatic, cleanup
from memory.search import reading
from memory.silo.silo import Read

EXCERPT = 200  # characters of each memory
_EXAMPLES = {"keep": "3,5@12", "discard": "3@390,5@12"}
_ABOUT = "These memories are older than their suggested retention. Nothing is discarded unless you say so."
_ANSWERS = {"": "s"} | {answer: word[0] for word in ("discard", "keep", "skip", "quit") for answer in (word, word[0])}
Listed = dict[int, int]  # memory → the version in the list, or 0 if no version was typed


class Command(AgentCommand):
    help = (
        "List memories that are older than the suggested retention of their category. With the agent's key in "
        f"{KEY}, the command asks at a terminal what to do with each of them. A script uses --discard and --keep. "
        "Nothing is deleted: a rollback restores a discarded memory."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_agent(parser, self.clean_up)
        parser.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=f"only this category: {NAMES}")
        parser.add_argument("--discard", metavar="NUMBERS", help=f"discard memories, such as 3@390,5@12; needs {KEY}")
        parser.add_argument("--keep", metavar="NUMBERS", help="keep these memories: they are not suggested again soon")
        parser.add_argument("--dry-run", action="store_true", help="only list; discard and keep nothing")
        parser.add_argument("--json", action="store_true", help="one line of JSON; ask nothing")

    def clean_up(self, agent: Agent, **options: Any) -> None:
        category, as_json, is_dry_run = options["category"], options["json"], options["dry_run"]
        kept, discarded = (_listed(name, options[name]) for name in ("keep", "discard"))
        if is_decided := bool(kept or discarded):
            agents_side(agent)  # or raise KeyRejected
        may_read = has_agents_key(agent) and self.can_ask()
        review = cleanup.review(agent, category=category, is_read=has_agents_key(agent))
        if as_json and (is_dry_run or not is_decided):
            suggestions = [each.as_record() for each in review.suggestions]
            self.result({"suggestions": suggestions, "more": review.more, "kept_back": review.kept_back})
        elif is_dry_run or not is_decided:
            interactive = settings_document.is_on(switches.rules_of(agent), "cleanup_guidance", "interactive_cleanup")
            is_asked = may_read and not is_dry_run and interactive
            numbers = [each.number for each in review.suggestions] if is_asked or (may_read and is_shown()) else []
            reads = {read.memory.number: read for read in reading.several(agent, numbers)} if numbers else {}
            if reads:
                agents_side(agent)  # the key may have ended meanwhile
            kept, discarded = self._go_through(review, reads, is_asked=is_asked)
        if not (as_json or kept or discarded):
            self._say_what_is_off(agent, category)
        if is_dry_run or not (kept or discarded):
            self.say("Nothing was decided.")
            return
        self._decide(agent, kept, discarded, json=as_json)

    def _decide(self, agent: Agent, kept: Listed, discarded: Listed, *, json: bool) -> None:
        versions = {number: version for number, version in (kept | discarded).items() if version}
        seq = cleanup.decide(agent, list(kept), list(discarded), agents_side(agent), expect=versions)
        if json:
            self.result({"kept": list(kept), "discarded": list(discarded), "entry": seq})
        entry = "" if seq is None else f", as entry {seq}"
        self.say(f"{len(kept):,} kept, {several(len(discarded), 'memory', 'memories')} discarded{entry}.")
        if seq is not None:
            them = "it" if len(discarded) == 1 else "them"
            self.say(f"manage.py rollback {agent.label} --entry {seq} restores {them}.")

    # --- the list

    def _go_through(
        self, review: cleanup.Review, reads: Mapping[int, Read], *, is_asked: bool
    ) -> tuple[Listed, Listed]:
        """Print each suggestion. If `is_asked` is true, ask what to do with each memory. Return the memories to keep
        and the memories to discard."""
        decided: dict[str, Listed] = {"k": {}, "d": {}}
        if review.suggestions:
            self.say(_ABOUT)
        for each in review.suggestions:
            self._print(each, reads)
            if not is_asked:
                continue
            answer = self._decision()
            if answer == "q":
                break
            if answer in decided:
                decided[answer][each.number] = reads[each.number].memory.version if each.number in reads else 0
        self._say_the_rest(review)
        return decided["k"], decided["d"]

    def _decision(self) -> str:
        self.stdout.flush()
        try:
            while (word := self.answer("Discard it, keep it, skip it, or quit? [d/k/S/q]")) not in _ANSWERS:
                pass
        except KeyboardInterrupt:
            self.say("Nothing was decided.")
            raise
        return _ANSWERS[word]

    def _print(self, each: cleanup.Suggestion, reads: Mapping[int, Read]) -> None:
        place = f"{each.category} of {each.project}" if each.project else each.category
        importance = f"{each.importance.name.lower()} importance"
        listed = f"{each.number}@{each.version}"
        self.tell(f"{listed:>10}  {place}, {importance}, {several(each.tokens, 'token')}: {each.reason}")
        if each.number in reads:
            content = " ".join(reads[each.number].opened.content.split())
            self.tell(f"            {content if len(content) <= EXCERPT else f'{content[:EXCERPT]}…'}")

    def _say_the_rest(self, review: cleanup.Review) -> None:
        if not review.suggestions:
            self.say("Nothing is suggested.")
        if review.more:
            self.say(f"More suggestions that come after these: {review.more:,}.")
        if review.kept_back:
            old = several(review.kept_back, "other old memory", "other old memories")
            self.say(f"Not listed, because they are important: {old}.")

    def _say_what_is_off(self, agent: Agent, category: str | None) -> None:
        """Print which settings prevent suggestions."""
        rules, closed = switches.rules_of(agent), switches.closed(agent)
        for name in ("enabled", "suggest_cleanup_actions"):
            if not settings_document.is_on(rules, "cleanup_guidance", name):
                self.say(f"Nothing is suggested while memory_rules.cleanup_guidance.{name} is off.")
                return
        if off := [name for name in SCOPES if name in closed and category in (None, name)]:
            are = "is" if len(off) == 1 else "are"
            self.say(f"{', '.join(off)} {are} off, so no memory of such a category is suggested.")
        elif category is not None and category not in automatic.retention(agent):
            self.say(f"Nothing in {category} is suggested, because its suggested_retention_days is 0.")


def _listed(field: str, text: str | None) -> Listed:
    """Parse numbers of memories, such as "3@390,5". The number after the @ is the version that the printed list shows.
    To discard a memory, the version is required. Raises Invalid."""
    listed = {}
    for part in text.split(",") if text is not None else ():
        number, at, version = part.strip().partition("@")
        if not _is_number(number) or not (_is_number(version) if at or field == "discard" else True):
            raise Invalid(field, f"must have the form of the printed list, such as {_EXAMPLES[field]}")
        listed[int(number)] = int(version or 0)
    return listed


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
