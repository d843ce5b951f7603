"""Print the memories that match a query."""

from typing import Any

from django.core.management.base import CommandParser

from config.wording import several
from memory.access.authentication import require_valid_key
from memory.management.agent_command import KEY, PROJECT_HELP, AgentCommand, agents_side
from memory.models import Agent
from memory.policy.categories import SCOPES
from memory.policy.validation import parse_moment
from memory.recording import retrieval
from memory.search import embedding
from memory.transfer.exporting import record


class Command(AgentCommand):
    help = f"Print the memories that match a query, best first, as a block for a prompt or as JSON. Needs {KEY}."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_agent(parser, self.recall)
        query = 'words; "quoted phrases"; tag:NAME; -word to exclude a word (put -- before a query that begins with -)'
        parser.add_argument("query", metavar="QUERY", help=query)
        parser.add_argument("--project", metavar="ID", help=f"search what this project can see; {PROJECT_HELP}")
        category = "only this category; required for credentials, keys and sensitive"
        parser.add_argument("--category", choices=sorted(SCOPES), default="", metavar="NAME", help=category)
        parser.add_argument("--limit", type=int, metavar="N", help="how many; default and maximum: search.max_results")
        parser.add_argument("--max-tokens", type=int, metavar="N", help="maximum tokens of all memories together")
        parser.add_argument("--tag", dest="tags", action="append", default=[], metavar="NAME", help="may be repeated")
        parser.add_argument("--since", metavar="DATE", help="earliest origin date; ISO 8601")
        parser.add_argument("--until", metavar="DATE", help="latest origin date; ISO 8601")
        same = "also print merged memories and sources of which another result says the same"
        parser.add_argument("--duplicates", action="store_true", help=same)
        parser.add_argument("--json", action="store_true", help="one line of JSON")

    def recall(self, agent: Agent, **options: Any) -> None:
        agents_side(agent)  # or raise KeyRejected
        project = self.project(agent, options["project"])
        limits = {name: options[name] for name in ("category", "limit", "max_tokens", "tags", "duplicates")}
        limits |= {name: parse_moment(name, options[name]) for name in ("since", "until") if options[name]}
        found = retrieval.retrieve(agent, options["query"], project=project, **limits)
        require_valid_key()  # the key may have ended meanwhile
        if options["json"]:
            self.result(_as_record(found) | {"project": project})
            return
        for line in found.block.splitlines():
            self.tell(line)
        left_out = f"; {found.left_out:,} more left out because of --max-tokens" if found.left_out else ""
        if found.searched_since:
            left_out += f"; no memory beneath from before {found.searched_since:%Y-%m-%d} was searched: use --until"
        if embedder := "" if found.by_meaning else embedding.serving(agent):
            left_out += f"; searched by words only, because {embedder} did not answer"
        many = several(len(found.reads), "memory", "memories")
        self.say(f"{many}, {several(found.tokens, 'token')}, visible from project {project or '-'}{left_out}.")


def _as_record(found: retrieval.Retrieved) -> dict[str, Any]:
    results = [
        record(read, with_discarded=True) | {"score": read.score, "recalled": found.times.get(read.memory.number, 0)}
        for read in found.reads
    ]
    fields = {name: getattr(found, name) for name in ("block", "tokens", "left_out", "by_meaning")}
    return {"results": results, **fields, "searched_since": found.searched_since and found.searched_since.isoformat()}
