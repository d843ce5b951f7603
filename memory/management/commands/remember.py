"""Store a memory, an interaction, a session or a topic."""

from contextlib import suppress
from functools import cached_property
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import read_file
from config.errors import FAILED
from config.wording import several
from memory.errors import Invalid, NotFound
from memory.management.agent_command import KEY, PROJECT_HELP, AgentCommand, agents_side
from memory.markdown import sections
from memory.masking.neutral import neutral_whole
from memory.masking.scanner import masked_together
from memory.models import Agent, Kind, RecordedSession
from memory.policy import settings_document, switches
from memory.policy.categories import NAMED_BY_SERVICE, NAMES, PRIVATE, PROJECT, SCOPES, default_category
from memory.policy.validation import Draft, checked_service, scope_of
from memory.recording import recorder, sessions, topics
from memory.recording.interactions import MOST, Interaction
from memory.vault.rendering import MASKING
from memory.writing import operations

_PARTS = ("context", "understanding", "decision", "outcome", "related")
_HEADINGS = dict(zip(_PARTS, sections.names("technical"), strict=True))
# The options for an interaction, a session's outcomes and a topic, with their help texts.
_INTERACTION = {
    "topic": "the topic of the interaction; the topic's memory is updated if the category topic is on",
    "context": "what happened before, if it matters for the interaction",
    "intent": "what the person wanted",
    "effectiveness": "how well the response met this intent",
    "learnings": "what the agent can learn from the interaction",
    "metrics": "how the success of the interaction is measured: tests passed, time saved",
}
_OUTCOMES = {
    "goal": "the goal of the session",
    "achieved": "which goals were achieved",
    "understandings": "what people or the agent understand now; default: the learnings in the session's recordings",
    "follow_up": "what is left to do",
    "clarity": "how clear the communication was",
    "resolution": "how the problem was solved; default: the effectiveness in the session's recordings",
    "satisfaction": "how satisfied the person is",
    "depth": "in what depth the topics were discussed",
}
_TOPIC = {
    "stage": "what happened with the topic this time; added as a stage of its development",
    "definition": "what the topic is; replaces the earlier definition",
    "scope": "what belongs to the topic and what does not; replaces the earlier scope",
    "level": "how well the topic is understood now",
    "expertise": "how much the person knows about the topic",
    "style": "how the person likes to talk about the topic",
}
_TOPIC_LISTS = {
    "related": "a related topic",
    "questions": "a common question",
    "approaches": "an approach that the person prefers",
    "insights": "an important concept",
    "practices": "a practice that works well",
    "pitfalls": "a mistake to avoid",
    "resources": "where to read more: a page, a book, a file",
}


class Command(AgentCommand):
    help = "Store a memory, an interaction (record), a session or a topic. Print JSON with the id and the file's path."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(required=True, metavar="ACTION")
        self._add_store(self.add_action(actions, "store", self.store, "store one memory; its text may have sections"))
        self._add_record(self.add_action(actions, "record", self.record, "store a prompt and its response"))
        self._add_session(self.add_action(actions, "session", self.session, "begin, end or list recorded sessions"))
        topic = f"store or update the memory of a topic; needs {KEY}"
        self._add_topic(self.add_action(actions, "topic", self.topic, topic))

    # --- store

    def _add_store(self, parser: CommandParser) -> None:
        text = parser.add_argument("content", metavar="[TEXT]", help="what to remember; - for standard input")
        text.required = False  # so that options may stand before it
        parser.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=NAMES)
        parser.add_argument("--project", metavar="ID", help=f"project, if the category needs one; {PROJECT_HELP}")
        parser.add_argument("--tag", dest="tags", action="append", default=[], metavar="TAG", help="may be repeated")
        parser.add_argument("--service", metavar="NAME", help="the service of a credential; part of its file's name")
        parser.add_argument("--credential", metavar="KIND", help="the kind of a credential: api-key, password, token …")
        journal = "store the memory in the journal, which is not part of core memory"
        parser.add_argument("--journal", action="store_true", help=journal)
        for name, heading in _HEADINGS.items():
            parser.add_argument(f"--{name}", metavar="TEXT", help=f"the section {heading}")
        parser.set_defaults(code_if_off=FAILED)

    def store(self, agent: Agent, *, category: str | None, project: str | None, **options: Any) -> None:
        category = category or default_category(project or "")
        tags, masked = _tags(category, options), 0
        content = neutral_whole(self._content(category, options))
        if scope_of(category) != PRIVATE and settings_document.is_on(switches.rules_of(agent), *MASKING):
            (content, *tags), masked = masked_together([content, *tags])
        kind = Kind.JOURNAL if options["journal"] else Kind.CORE
        project = self.project(agent, project) if project is not None or scope_of(category) == PROJECT else ""
        draft = Draft(content, kind=kind, category=category, project=project, tags=tags)
        number = operations.remember(agent, [draft], self.operator).memory.number
        if masked:
            self.say(f"{several(masked, 'secret')} masked. To store a credential or a key, use --category.")
        self.stored(agent, number, category=category, project=project, masked=masked)

    def _content(self, category: str, options: dict[str, Any]) -> str:
        """Return the text of the memory. If options give the texts of sections, return these sections, and use
        `content` as the main section. Raises Invalid."""
        text, known = self._text("content", options["content"]), sections.names(category)
        texts = {heading: options[name] for name, heading in _HEADINGS.items() if options[name]}
        for name, heading in _HEADINGS.items():
            if heading in texts and heading not in known:
                raise Invalid(name, f"is not a section of {category}, which has the sections {', '.join(known)}")
        if not texts:
            if not text:
                raise Invalid("content", "is required: a text, - for standard input, or sections such as --context")
            return text
        main = sections.main_section(category)
        if text and main in texts:
            raise Invalid("content", f"becomes the section {main}, which an option also sets: use only one of the two")
        texts |= {main: text} if text else {}
        return sections.join({name: texts.get(name, "") for name in known})

    # --- record

    def _add_record(self, parser: CommandParser) -> None:
        for name, summary in (("prompt", "what the person said"), ("response", "what the agent answered")):
            either = parser.add_mutually_exclusive_group(required=name == "prompt")
            either.add_argument(f"--{name}", metavar="TEXT", help=f"{summary}; - for standard input")
            either.add_argument(f"--{name}-file", metavar="FILE", help=f"{summary}: a file; - for standard input")
        parser.add_argument("--session", default="", metavar="NAME", help="default: the open session, or a new session")
        parser.add_argument("--project", metavar="ID", help=PROJECT_HELP)
        for name, summary in _INTERACTION.items():
            parser.add_argument(f"--{name}", default="", metavar="TEXT", help=summary)
        parser.add_argument("--seconds", dest="response_seconds", type=float, metavar="N", help="the response time")
        parser.add_argument("--tool", dest="tools", action="append", default=[], metavar="NAME", help="may be repeated")
        parser.add_argument("--automatic", action="store_true", help="do nothing if automatic recording is off")

    def record(self, agent: Agent, *, automatic: bool, project: str | None, **options: Any) -> None:
        sources = {name: (options[name], options[f"{name}_file"]) for name in ("prompt", "response")}
        if all("-" in source for source in sources.values()):
            raise Invalid("response", "and prompt cannot both come from standard input")
        fields: dict[str, Any] = {name: self._text(name, *source) for name, source in sources.items()}
        fields |= {name: options[name] for name in (*_INTERACTION, "session", "response_seconds", "tools")}
        interaction = Interaction(**fields, project=self.project(agent, project))
        found = recorder.record(agent, interaction, self.operator, requested=not automatic)
        session = None if found.session is None else found.session.name
        self.stored(agent, found.number, session=session, masked=found.masked, skipped=found.skipped)

    # --- session

    def _add_session(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=("begin", "end", "list"), metavar="begin|end|list", help="what to do")
        default = "the session's name; default of begin: the time; default of end: the open session"
        name = parser.add_argument("name", default="", metavar="[NAME]", help=default)
        name.required = False  # so that options may stand before it
        project = f"begin: {PROJECT_HELP}; end: needed if several sessions have this name"
        parser.add_argument("--project", metavar="ID", help=project)
        for option, summary in _OUTCOMES.items():
            parser.add_argument(f"--{option.replace('_', '-')}", default="", metavar="TEXT", help=f"end: {summary}")

    def session(self, agent: Agent, *, what: str, name: str, project: str | None, **options: Any) -> None:
        switches.require_on(agent)
        if what == "list":
            rows = RecordedSession.objects.filter(agent_id=agent.pk).order_by("pk")
            self.result([_session_record(session) for session in rows])
            return
        switches.require_open(agent, ("session",))  # only the memory of a session needs this category
        if what == "begin":
            begun = sessions.begin(agent, name, self.operator, project=self.project(agent, project))
            self.result({"session": begun.name, "project": begun.project})
            return
        found = self._session_to_end(agent, name, project or "")
        outcomes = sessions.Outcomes(**{field: options[field] for field in _OUTCOMES})
        edited = sessions.end_session(agent, found.name, self.operator, project=found.project, outcomes=outcomes)
        number = edited.memory.number if edited is not None and edited.memories else None
        if number is None:
            self.say("Nothing was recorded in this session, so the session has no memory.")
        self.stored(agent, number, session=found.name)

    def _session_to_end(self, agent: Agent, name: str, project: str) -> RecordedSession:
        """Return the session that the command must end. If the option names a project, search only there. Without the
        option, search in the project of this folder, and then in all projects. Raises NotFound, Invalid."""
        try:
            return sessions.find(agent, name, project or self.project(agent, None))
        except NotFound:
            if project:
                raise
        return sessions.find(agent, name)

    # --- topic

    def _add_topic(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the topic's name; case makes no difference")
        parser.add_argument("--project", metavar="ID", help=PROJECT_HELP)
        parser.add_argument("--session", default="", metavar="NAME", help="the session in which it was discussed")
        for name, summary in _TOPIC.items():
            parser.add_argument(f"--{name}", default="", metavar="TEXT", help=summary)
        for field, summary in _TOPIC_LISTS.items():
            option = "--approach" if field == "approaches" else f"--{field.removesuffix('s')}"
            help_text = f"{summary}; may be repeated"
            parser.add_argument(option, dest=field, action="append", default=[], metavar="TEXT", help=help_text)

    def topic(self, agent: Agent, *, name: str, project: str | None, **options: Any) -> None:
        side = agents_side(agent)  # the key is needed, because the output tells whether the topic changed
        fields: dict[str, Any] = {field: options[field] for field in (*_TOPIC, "session")}
        fields |= {field: tuple(options[field]) for field in _TOPIC_LISTS}
        stage = topics.Stage(**fields, project=self.project(agent, project))
        edited = topics.evolve(agent, name, side, stage)
        number = edited.memory.number if edited.memories else topics.number_of(agent, name, stage.project)
        self.stored(agent, number, changed=edited.seq is not None)

    # --- texts

    def _text(self, field: str, text: str | None, file: str | None = None) -> str:
        """Return the text of an option, or the content of a file. "-" means standard input. Raises Invalid. The error
        does not quote the text."""
        if file is None and text != "-":
            return text or ""
        data = self._standard_input if "-" in (text, file) else read_file(field, file or "", 4 * MOST + 1)
        with suppress(UnicodeDecodeError):  # this error has the text in it
            return data.decode()
        raise Invalid(field, "is not UTF-8")

    @cached_property
    def _standard_input(self) -> bytes:
        """The content of standard input. It is read only once and then kept, because the action may run a second time,
        after a switch is turned on."""
        return read_file("standard input", "-", 4 * MOST + 1)


def _tags(category: str, options: dict[str, Any]) -> list[str]:
    """Return the tags in the options. Add tags for the service and the kind of a credential. Raises Invalid."""
    named = {name: options[name] for name in ("service", "credential") if options[name]}
    if named and category not in NAMED_BY_SERVICE:
        allowed = " and ".join(NAMED_BY_SERVICE)
        raise Invalid(next(iter(named)), f"is only for the categories {allowed}: use one of these as --category")
    return [*options["tags"], *(f"{name}:{checked_service(value, name)}" for name, value in named.items())]


def _session_record(session: RecordedSession) -> dict[str, Any]:
    """Return the names, times and counts of a session, without content."""
    return {
        "session": session.name,
        "project": session.project,
        "began_at": session.began_at.isoformat(),
        "last_at": session.last_at.isoformat(),
        "ended_at": None if session.ended_at is None else session.ended_at.isoformat(),
        "recordings": len(session.numbers),
        "id": session.memory,
    }
