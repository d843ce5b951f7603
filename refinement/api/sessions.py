"""Refinement sessions over the API: driven by the service, or by the agent's own runtime."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, FreeForm, Page, Text
from memory.api.base.views import AgentView, listed, newest_first, page_of
from refinement import backlog, runtime, undone_sessions
from refinement.api.agent import AgentOut
from refinement.llm import anthropic, openai
from refinement.models import Driver, Mode, Outcome, RefinementSession


class SessionIn(Body):
    driver = Choice(
        Driver.values, default=Driver.RUNTIME, help_text="runtime: you call the tools; server: a worker does"
    )
    mode = Choice(Mode.values, default=Mode.FULL, help_text="dedupe_only: for a session your runtime drives")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["driver"] == Driver.SERVER and attrs["mode"] != Mode.FULL:
            raise serializers.ValidationError({"mode": f"must be {Mode.FULL} where the service drives the session"})
        return attrs


class SessionOut(serializers.Serializer[Any]):
    """A session's state and figures; no content."""

    id = serializers.IntegerField(source="number")
    driver = serializers.ChoiceField(Driver.values)
    mode = serializers.ChoiceField(Mode.values)
    trigger = serializers.CharField()
    model = serializers.CharField()
    outcome = serializers.ChoiceField(Outcome.values)
    reason = serializers.CharField(allow_blank=True)
    opened_at = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)
    undone_by = serializers.IntegerField(
        allow_null=True, help_text="the entry of the trail that rolled it back whole; null while any of it stands"
    )
    lease_until = serializers.DateTimeField(help_text="given up for lost after this, unless a call renews it")
    budget_tokens = serializers.IntegerField()
    target_tokens = serializers.IntegerField()
    floor_tokens = serializers.IntegerField()
    tokens_before = serializers.IntegerField(help_text="of core memory, exact duplicates and all")
    tokens_after = serializers.IntegerField()
    memories_before = serializers.IntegerField(help_text="in core memory, exact duplicates and all")
    memories_after = serializers.IntegerField()
    repeated_tokens = serializers.IntegerField(
        help_text="of the exact duplicates of core memories, which went as the session opened"
    )
    duplicates_removed = serializers.IntegerField(help_text="as the session opened; journal memories among them")
    batch = serializers.IntegerField(help_text="from 0")
    batches = serializers.IntegerField()
    steps = serializers.IntegerField()
    max_steps = serializers.IntegerField()
    changes = serializers.IntegerField()
    max_changes = serializers.IntegerField()
    merged = serializers.IntegerField()
    updated = serializers.IntegerField()
    deleted = serializers.IntegerField()
    protected = serializers.IntegerField()
    promoted = serializers.IntegerField()


class BriefingQuery(Body):
    format = Choice(["openai", "anthropic"], default="openai", help_text="the form of the tools")


class MessageOut(serializers.Serializer[Any]):
    role = serializers.ChoiceField(["system", "user"])
    content = serializers.CharField(source="text")


class BriefingOut(serializers.Serializer[Any]):
    messages = MessageOut(many=True)
    tools = serializers.ListField(
        child=FreeForm(help_text="in the provider's form, with a JSON Schema of its arguments, so free-form here")
    )
    batch = serializers.IntegerField(help_text="from 1")
    batches = serializers.IntegerField()


class CallIn(Body):
    arguments = FreeForm(
        allow_null=True, help_text="as the model gave them: each tool has its own, so free-form here; the tool checks"
    )
    reply = Text(
        max_length=64,
        required=False,
        allow_blank=True,
        default="",
        help_text="names the model's reply the call is of: calls of one reply count as one step",
    )


class ResultField(FreeForm):
    def to_representation(self, value: Any) -> Any:
        return json.loads(value)


class CallOut(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    code = serializers.CharField()
    result = ResultField(
        source="text", help_text="to be given to the model as it is: each tool has its own, so free-form here"
    )
    session_ended = serializers.BooleanField(source="is_over")
    batch_done = serializers.BooleanField(source="is_batch_done", help_text="ask for the next briefing")


class AbortIn(Body):
    reason = Text(max_length=2_000, required=False, allow_blank=True, default="")


class Sessions(AgentView):
    @extend_schema(operation_id="sessions_list", parameters=[Page], responses=page_of("SessionsOut", SessionOut))
    def get(self, request: Request) -> Response:
        """The sessions, newest first."""
        asked = self.asked(Page)
        found = newest_first(RefinementSession, self.agent, asked)
        return listed(found, asked["limit"], "number", _shown)

    @extend_schema(operation_id="sessions_open", request=SessionIn, responses={201: SessionOut, 202: AgentOut})
    def post(self, request: Request) -> Response:
        """Open a session for your runtime to drive (201), or have a worker of the service refine the agent (202)."""
        given = self.given(SessionIn)
        if given["driver"] == Driver.SERVER:
            due = backlog.ask(self.agent)
            due.tenant = self.agent.tenant
            return Response(AgentOut(due).data, status.HTTP_202_ACCEPTED)
        return _answer(runtime.begin(self.agent, mode=given["mode"]), status.HTTP_201_CREATED)


class OneSession(AgentView):
    @extend_schema(operation_id="sessions_read", responses=SessionOut)
    def get(self, request: Request, number: int) -> Response:
        """How a session stands: its state and figures, no content."""
        return _answer(runtime.find(self.agent, number))


class Briefing(AgentView):
    @extend_schema(operation_id="sessions_briefing", parameters=[BriefingQuery], responses=BriefingOut)
    def get(self, request: Request, number: int) -> Response:
        """Messages and tools to give your model for the batch that is due. What it is shown, it may edit."""
        form = {"openai": openai.tool, "anthropic": anthropic.tool}[self.asked(BriefingQuery)["format"]]
        briefing = runtime.briefing(runtime.find(self.agent, number))
        messages, tools = MessageOut(briefing.messages, many=True).data, [form(tool) for tool in briefing.tools]
        return Response({"messages": messages, "tools": tools, "batch": briefing.batch, "batches": briefing.batches})


class Call(AgentView):
    @extend_schema(operation_id="sessions_call", request=CallIn, responses=CallOut)
    def post(self, request: Request, number: int, tool: str) -> Response:
        """Carry out one of the model's tool calls. A refused one changes nothing, and its answer says why."""
        given = self.given(CallIn)
        arguments = given["arguments"] if isinstance(given["arguments"], dict) else None
        result = runtime.call(runtime.find(self.agent, number), tool, arguments, reply=given["reply"])
        return Response(CallOut(result).data)


class Abort(AgentView):
    @extend_schema(operation_id="sessions_abort", request=AbortIn, responses=SessionOut)
    def post(self, request: Request, number: int) -> Response:
        """End the session early. What was done stays done."""
        return _answer(runtime.abort(runtime.find(self.agent, number), self.given(AbortIn)["reason"]))


def _answer(session: RefinementSession, status_code: int = status.HTTP_200_OK) -> Response:
    return Response(_shown([session])[0], status_code)


def _shown(sessions: list[RefinementSession]) -> list[Any]:
    undone_sessions.note(sessions)
    return list(SessionOut(sessions, many=True).data)
