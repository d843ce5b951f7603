"""Recording interactions over the API (seed 004): what was said comes in, and is not said again."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import OPTIONAL_TEXT, Body, List, Text
from memory.api.base.memory_out import WithFile
from memory.api.base.views import IDEMPOTENCY_KEY, AgentView
from memory.models import Agent, RecordedSession
from memory.policy import switches
from memory.recording import recorder, sessions
from memory.recording.interactions import MOST, Interaction
from memory.recording.session_memory import CATEGORY, Outcomes
from memory.recording.significance import KINDS, LEVELS
from memory.vault import writer

_OPTIONAL: Any = {"required": False, "allow_null": True, "default": None}
_LINE = OPTIONAL_TEXT | {"max_length": 1_000}
_TOLD = OPTIONAL_TEXT | {"max_length": 500}


class RecordingIn(Body):
    prompt = Text(max_length=MOST, help_text="the whole prompt; secrets in it are masked")
    response = Text(max_length=MOST, **OPTIONAL_TEXT, help_text="the whole response; secrets in it are masked")
    session = Text(max_length=64, **OPTIONAL_TEXT, help_text="name: letters, digits and . _ -; default: the open one")
    project = Text(max_length=100, **OPTIONAL_TEXT)
    topic = Text(max_length=58, **OPTIONAL_TEXT, help_text="topic whose memory this extends")
    context = Text(**_LINE, help_text="what led to the interaction")  # type: ignore[assignment]  # a field, not the property
    intent = Text(**_TOLD)
    effectiveness = Text(**_TOLD)
    learnings = Text(**_TOLD)
    response_seconds = serializers.FloatField(**_OPTIONAL, min_value=0, max_value=10**7)
    tools = List(child=Text(max_length=64), max_length=20, required=False, default=list)
    metrics = Text(**_TOLD)
    requested = serializers.BooleanField(
        default=False,
        help_text="a person asked for this recording: automatic recording and the threshold are not needed",
    )


class RecordingOut(WithFile):
    id = serializers.IntegerField(allow_null=True, help_text="number of the first journal memory, if recorded")
    session = serializers.CharField(allow_null=True, help_text="the session's name")
    kind = serializers.ChoiceField(KINDS, allow_null=True)
    significance = serializers.ChoiceField(LEVELS, allow_null=True)
    masked = serializers.IntegerField(help_text="number of masked secrets")
    skipped = serializers.ChoiceField(recorder.REASONS, allow_null=True, help_text="why nothing was recorded")


class _Skipped(Exception):
    """Ends a request that makes nothing, so that its Idempotency-Key can be used again."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Recordings(AgentView):
    @extend_schema(
        operation_id="recordings_create",
        request=RecordingIn,
        responses={201: RecordingOut, 200: RecordingOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Record an interaction (201). If a switch or the threshold skips it, return the reason (200)."""
        payload = self.payload(RecordingIn)
        requested = payload.pop("requested")
        interaction = Interaction(**payload | {"tools": tuple(payload["tools"])})

        ready = cache(partial(recorder.ready, self.agent, interaction, requested=requested))

        def make(agent: Agent) -> list[int]:
            return _numbers(ready().keep(agent, self.actor))

        try:
            recorded = _recorded(self.once(make, prepare=ready))
        except _Skipped as skipped:
            nothing = dict.fromkeys(("id", "session", "kind", "significance", "file", "no_file"))
            return Response(nothing | {"masked": 0, "skipped": skipped.reason})
        return Response(recorded | writer.files_or_reasons(self.agent, [recorded["id"]])[0], status.HTTP_201_CREATED)


def _numbers(found: recorder.Recorded) -> list[int]:
    """The whole response as numbers, for a repeated request. Raises _Skipped."""
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
    goal = Text(**_TOLD, help_text="the purpose of the session")
    achieved = Text(**_TOLD)
    understandings = Text(**_TOLD)
    follow_up = Text(**_TOLD)
    clarity = Text(**_TOLD)
    resolution = Text(**_TOLD)
    satisfaction = Text(**_TOLD)
    depth = Text(**_TOLD, help_text="how deep the discussion went")


class EndOut(WithFile):
    id = serializers.IntegerField(allow_null=True, help_text="number of the session's memory; null if it has none")


class End(AgentView):
    @extend_schema(operation_id="recorded_sessions_end", request=EndIn, responses=EndOut)
    def post(self, request: Request, name: str) -> Response:
        """End a recorded session. Its memory is made from its recordings and from this request."""
        payload = self.payload(EndIn)
        project = payload.pop("project")
        if self.agent.memory_enabled:  # else it is that which is told
            switches.require_open(self.agent, (CATEGORY,))
        edited = sessions.end_session(self.agent, name, self.actor, project=project, outcomes=Outcomes(**payload))
        if edited is None or not edited.memories:
            return Response({"id": None, "file": None, "no_file": None})
        return Response({"id": edited.memory.number} | writer.files_or_reasons(self.agent, [edited.memory.number])[0])
