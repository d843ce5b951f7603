"""API of recording: record interactions and sessions, retrieve memories for a prompt, clean up old memories.

No response repeats a recorded prompt or response.
"""

from functools import cache, partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import OPTIONAL_TEXT, Body, Boolean, Choice, List, Numbers, Text, Whole
from memory.api.base.memory_out import CATEGORIES, WithFile
from memory.api.base.views import IDEMPOTENCY_KEY, AgentView
from memory.api.memories import BY_MEANING, MAX_FOUND, MAX_QUERY, QUERY, SEARCHED_SINCE, FoundOut, found_out
from memory.models import Agent, RecordedSession
from memory.policy import switches
from memory.policy.validation import MAX_TAG, MAX_TAGS
from memory.recording import cleanup, recorder, retrieval, sessions
from memory.recording.interactions import KINDS, LEVELS, MOST, Interaction
from memory.recording.sessions import CATEGORY, Outcomes

_LINE = OPTIONAL_TEXT | {"max_length": 1_000}
_NOTE = OPTIONAL_TEXT | {"max_length": 500}


class RecordingIn(Body):
    prompt = Text(max_length=MOST, help_text="the whole prompt; secrets in it are masked")
    response = Text(max_length=MOST, **OPTIONAL_TEXT, help_text="the whole response; secrets in it are masked")
    session = Text(max_length=64, **OPTIONAL_TEXT, help_text="letters, digits, `.`, `_` and `-`; default: the open one")
    project = Text(max_length=100, **OPTIONAL_TEXT)
    topic = Text(max_length=58, **OPTIONAL_TEXT, help_text="topic; the interaction is added to the topic's memory")
    context = Text(**_LINE, help_text="what led to the interaction")  # type: ignore[assignment]  # a field, not the property
    intent = Text(**_NOTE)
    effectiveness = Text(**_NOTE)
    learnings = Text(**_NOTE)
    response_seconds = serializers.FloatField(allow_null=True, default=None, min_value=0, max_value=10**7)
    tools = List(child=Text(max_length=64), max_length=20, required=False, default=list)
    metrics = Text(**_NOTE)
    requested = Boolean(
        default=False,
        help_text="true if a person requested this recording. The interaction is then recorded even if automatic "
        "recording is off or the interaction's significance is below the threshold",
    )


class RecordingOut(WithFile):
    id = serializers.IntegerField(allow_null=True, help_text="number of the first journal memory, or null")
    session = serializers.CharField(allow_null=True, help_text="the session's name")
    kind = serializers.ChoiceField(KINDS, allow_null=True)
    significance = serializers.ChoiceField(LEVELS, allow_null=True)
    masked = serializers.IntegerField(help_text="number of masked secrets")
    skipped = serializers.ChoiceField(recorder.REASONS, allow_null=True, help_text="why nothing was recorded")


class _Skipped(Exception):
    """Raised if nothing is recorded. The Idempotency-Key is then not stored, and the caller can use it again."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


_OUT = {201: RecordingOut, 200: RecordingOut}


class Recordings(AgentView):
    @extend_schema(operation_id="recordings_create", request=RecordingIn, responses=_OUT, parameters=[IDEMPOTENCY_KEY])
    def post(self, request: Request) -> Response:
        """Record an interaction. The status is 201. If the interaction is skipped, the status is 200, and `skipped`
        says why."""
        payload = self.payload(RecordingIn)
        requested = payload.pop("requested")
        interaction = Interaction(**payload | {"tools": tuple(payload["tools"])})

        ready = cache(partial(recorder.prepare, self.agent, interaction, requested=requested))

        def make(agent: Agent) -> list[int]:
            return _numbers(ready().keep(agent, self.actor))

        try:
            recorded = _recorded(self.once(make, prepare=ready))
        except _Skipped as skipped:
            nothing = dict.fromkeys(("id", "session", "kind", "significance", "file", "no_file"))
            return Response(nothing | {"masked": 0, "skipped": skipped.reason})
        return Response(recorded | self.files([recorded["id"]])[0], status.HTTP_201_CREATED)


def _numbers(found: recorder.Recorded) -> list[int]:
    """Turn the response into a list of numbers, which is stored for repeated requests. Raises _Skipped."""
    if found.session is None:
        raise _Skipped(found.skipped or "")
    level = LEVELS.index(found.significance)
    return [found.numbers[0], found.session.pk, KINDS.index(found.kind), level, found.masked]


def _recorded(numbers: list[int]) -> dict[str, Any]:
    number, session, kind, level, masked = numbers
    return {
        "id": number,
        "session": RecordedSession.objects.values_list("name", flat=True).get(pk=session),
        "kind": KINDS[kind],
        "significance": LEVELS[level],
        "masked": masked,
        "skipped": None,
    }


class EndIn(Body):
    project = Text(max_length=100, **OPTIONAL_TEXT, help_text="required if sessions of several projects have this name")
    goal = Text(**_NOTE, help_text="the purpose of the session")
    achieved = Text(**_NOTE)
    understandings = Text(**_NOTE)
    follow_up = Text(**_NOTE)
    clarity = Text(**_NOTE)
    resolution = Text(**_NOTE)
    satisfaction = Text(**_NOTE)
    depth = Text(**_NOTE, help_text="how deep the discussion went")


class EndOut(WithFile):
    id = serializers.IntegerField(allow_null=True, help_text="number of the session's memory, or null")


class End(AgentView):
    @extend_schema(operation_id="recorded_sessions_end", request=EndIn, responses=EndOut)
    def post(self, request: Request, name: str) -> Response:
        """End a recorded session. The service makes the session's memory from its recordings and this request."""
        payload = self.payload(EndIn)
        project = payload.pop("project")
        if self.agent.memory_enabled:  # if it is off, `end_session` raises MemoryDisabled
            switches.require_open(self.agent, (CATEGORY,))
        edited = sessions.end_session(self.agent, name, self.actor, project=project, outcomes=Outcomes(**payload))
        if edited is None or not edited.memories:
            return Response({"id": None, "file": None, "no_file": None})
        return Response({"id": edited.memory.number} | self.files([edited.memory.number])[0])


class RetrieveIn(Body):
    query = Text(max_length=MAX_QUERY, allow_blank=True, help_text=QUERY)
    project = Text(max_length=100, required=False, allow_blank=True, help_text="the current project; default: none")
    category = Choice(CATEGORIES, required=False, help_text="only this one; required for credentials, keys, sensitive")
    limit = Whole(
        min_value=1,
        max_value=MAX_FOUND,
        required=False,
        help_text="how many memories to return; the setting `search.max_results` is the maximum and the default",
    )
    max_tokens = Whole(min_value=0, required=False, help_text="maximum tokens of all memories together")
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    since = serializers.DateTimeField(required=False, help_text="earliest origin date")
    until = serializers.DateTimeField(required=False, help_text="latest origin date")
    duplicates = Boolean(
        default=False, help_text="also return merged memories and sources of which another result says the same"
    )


class RecalledOut(FoundOut):
    excerpt = serializers.BooleanField(
        help_text="`max_tokens` has no room for the whole memory. `content` has only the part that concerns the "
        "superseded memories after it"
    )
    recalled = serializers.IntegerField(help_text="number of retrievals, including this one; 0 if they are not counted")


class RetrievedOut(serializers.Serializer[Any]):
    results = RecalledOut(many=True, help_text="best first")
    block = serializers.CharField(allow_blank=True, help_text="the same memories as text for a prompt")
    tokens = serializers.IntegerField(help_text="number of tokens of these memories")
    left_out = serializers.IntegerField(help_text="number of matches that do not fit in `max_tokens`")
    searched_since = serializers.DateTimeField(allow_null=True, help_text=SEARCHED_SINCE)
    by_meaning = serializers.BooleanField(help_text=BY_MEANING)


class Retrieve(AgentView):
    shows_later = True

    @extend_schema(operation_id="memories_retrieve", request=RetrieveIn, responses=RetrievedOut)
    def post(self, request: Request) -> Response:
        """Find memories that help with a question, and count each retrieval.

        The query is content, so send it in the body. The query is not stored.
        """
        payload = self.payload(RetrieveIn)
        found = retrieval.retrieve(self.agent, payload.pop("query"), **payload)
        results = [
            found_out(read) | {"excerpt": read.is_excerpt, "recalled": found.times.get(read.memory.number, 0)}
            for read in found.reads
        ]
        others = ("block", "tokens", "left_out", "searched_since", "by_meaning")
        return Response({"results": results} | {name: getattr(found, name) for name in others})


MOST = 500  # numbers in one request


class CleanupQuery(Body):
    category = Choice(CATEGORIES, required=False)


class VersionIn(Body):
    """The number of a memory, and its version in the list of suggestions."""

    id = Whole(min_value=1)
    version = Whole(min_value=1)


class DecisionIn(Body):
    """The numbers of the memories to keep and to discard."""

    keep = List(
        child=Whole(min_value=1),
        max_length=MOST,
        required=False,
        help_text="memories to keep; they are not suggested again for some time",
    )
    discard = List(child=Whole(min_value=1), max_length=MOST, required=False, help_text="memories to discard")
    expect = List(
        child=VersionIn(),
        max_length=MOST,
        required=False,
        help_text="the listed version of each memory to discard; if a memory has changed, the error is stale_memory",
    )


class SuggestionOut(serializers.Serializer[Any]):
    """A memory that is older than the retention time of its category. The content is not included."""

    id = serializers.IntegerField(source="number", help_text="the memory's number")
    version = serializers.IntegerField(help_text="pass it in `expect`")
    category = serializers.ChoiceField(CATEGORIES)
    project = serializers.CharField(allow_blank=True)
    age_days = serializers.IntegerField()
    retention_days = serializers.IntegerField(help_text="suggested number of days to keep a memory of this category")
    importance = serializers.ChoiceField([each.name.lower() for each in cleanup.Importance])
    tokens = serializers.IntegerField()
    recalled = serializers.IntegerField(help_text="how often retrieval returned it")
    reason = serializers.CharField()


class CleanupOut(serializers.Serializer[Any]):
    suggestions = SuggestionOut(many=True, help_text="at most `batch_cleanup_limit`, least important first")
    more = serializers.IntegerField(help_text="how many more suggestions there are after these")
    kept_back = serializers.IntegerField(help_text="number of old memories that are too important to suggest")


class DecidedOut(serializers.Serializer[Any]):
    kept = Numbers()
    discarded = Numbers()
    entry = serializers.IntegerField(allow_null=True, help_text="audit entry; null if nothing was discarded")


class Cleanup(AgentView):
    @extend_schema(operation_id="cleanup_list", parameters=[CleanupQuery], responses=CleanupOut)
    def get(self, request: Request) -> Response:
        """List memories that are older than the retention time of their category.

        Nothing is discarded automatically.
        """
        review = cleanup.review(self.agent, category=self.query(CleanupQuery).get("category"), is_read=True)
        suggestions = [each.as_record() for each in review.suggestions]
        found = {"suggestions": suggestions, "more": review.more, "kept_back": review.kept_back}
        return Response(CleanupOut(found).data)

    @extend_schema(operation_id="cleanup_decide", request=DecisionIn, responses=DecidedOut)
    def post(self, request: Request) -> Response:
        """Keep or discard suggested memories, by number. The request applies all decisions or none.

        `expect` has the listed version of each memory to discard.
        """
        payload = self.payload(DecisionIn)
        expect = {each["id"]: each["version"] for each in payload.get("expect", ())}
        keep, discard = payload.get("keep", ()), payload.get("discard", ())
        entry = cleanup.decide(self.agent, keep, discard, self.actor, expect=expect)
        return Response({"kept": keep, "discarded": discard, "entry": entry})
