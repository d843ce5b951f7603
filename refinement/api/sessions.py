"""API of refinement sessions. The service or the agent's own runtime drives a session."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import OPTIONAL_TEXT, Body, Boolean, Choice, FreeForm, Page, Text
from memory.api.base.views import IDEMPOTENCY_KEY, AgentView, describe_list, listed, newest_first
from memory.models import DueReason
from refinement import backlog, cost, knife, undone_sessions
from refinement import session as sessions
from refinement.api.agent import AgentOut
from refinement.llm import anthropic, openai
from refinement.models import Driver, Mode, Outcome, RefinementSession


class SessionIn(Body):
    driver = Choice(
        Driver.values,
        default=Driver.RUNTIME,
        help_text="`runtime`: you call the tools; `server`: a worker of the service calls them",
    )
    mode = Choice(
        [Mode.FULL, Mode.DEDUPE_ONLY],
        default=Mode.FULL,
        help_text="`dedupe_only` is for sessions that your runtime drives",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["driver"] == Driver.SERVER and attrs["mode"] != Mode.FULL:
            raise serializers.ValidationError({"mode": f"must be {Mode.FULL} if the service drives the session"})
        return attrs


class CostOut(serializers.Serializer[Any]):
    expected_prompt_tokens = serializers.IntegerField(help_text="estimate, without a cache")
    expected_completion_tokens = serializers.IntegerField()
    expected_price = serializers.FloatField(allow_null=True, help_text="null if the operator has set no price")
    prompt_tokens = serializers.IntegerField(help_text="including `cached_tokens`")
    cached_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    price = serializers.FloatField(allow_null=True)


class SessionOut(serializers.ModelSerializer[RefinementSession]):
    """A session's state and figures; no content."""

    id = serializers.IntegerField(source="number")
    driver = serializers.ChoiceField(Driver.values)
    mode = serializers.ChoiceField(Mode.values)
    outcome = serializers.ChoiceField(Outcome.values)
    undone_by = serializers.IntegerField(allow_null=True, help_text="audit entry that rolled back the whole session")
    cost = serializers.SerializerMethodField(help_text="expected and actual cost; 0 if your runtime calls the model")

    class Meta:
        model = RefinementSession
        fields = (
            *("id", "driver", "mode", "store", "trigger", "model", "outcome", "reason", "opened_at", "closed_at"),
            *("undone_by", "lease_until", "budget_tokens", "target_tokens", "floor_tokens", "tokens_before"),
            *("tokens_after", "memories_before", "memories_after", "repeated_tokens", "duplicates_removed"),
            *("batch", "batches", "steps", "max_steps", "changes", "max_changes", "merged", "updated", "deleted"),
            *("demoted", "protected", "promoted", "left_out", "problem", "cost"),
        )
        read_only_fields = fields
        extra_kwargs = {
            "lease_until": {"help_text": "if no call renews the lease, the session is abandoned then"},
            "tokens_before": {"help_text": "tokens of core memory, including exact duplicates"},
            "memories_before": {"help_text": "number of core memories, including exact duplicates"},
            "repeated_tokens": {"help_text": "tokens of exact duplicates that were removed at the start"},
            "duplicates_removed": {"help_text": "removed at the start, from core memory and journal"},
            "batch": {"help_text": "counted from 0"},
        }

    @extend_schema_field(CostOut)
    def get_cost(self, session: RefinementSession) -> dict[str, Any]:
        return cost.figures(session)


class BriefingQuery(Body):
    format = Choice(["openai", "anthropic"], default="openai", help_text="format of the tools")


class MessageOut(serializers.Serializer[Any]):
    role = serializers.ChoiceField(["system", "user"])
    content = serializers.CharField(source="text")


class BriefingOut(serializers.Serializer[Any]):
    messages = MessageOut(many=True)
    tools = serializers.ListField(
        child=FreeForm(help_text="a tool with a JSON Schema of its arguments; its form depends on `format`")
    )
    batch = serializers.IntegerField(help_text="counted from 1")
    batches = serializers.IntegerField()


class CallIn(Body):
    arguments = FreeForm(allow_null=True, help_text="as the model sent them; free-form, because tools differ")
    reply = Text(max_length=64, **OPTIONAL_TEXT, help_text="name of the model's reply; one reply counts as one step")
    last = Boolean(default=True, help_text="the last call of the reply: the result has the session's figures")


class CallOut(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    code = serializers.CharField()
    result = FreeForm(source="answer", help_text="give it to the model unchanged; free-form, because tools differ")
    session_ended = serializers.BooleanField(source="is_over")
    batch_done = serializers.BooleanField(source="is_batch_done", help_text="whether to read the next briefing")


class AbortIn(Body):
    reason = Text(max_length=2_000, **OPTIONAL_TEXT)


class Sessions(AgentView):
    @describe_list("sessions_list", Page, "SessionsOut", SessionOut)
    def get(self, request: Request) -> Response:
        """List the sessions, newest first."""
        query = self.query(Page)
        rows = newest_first(RefinementSession, self.agent, query).select_related("agent")
        return listed(rows, query["limit"], "number", _as_json)

    @extend_schema(operation_id="sessions_open", request=SessionIn, responses={201: SessionOut, 202: AgentOut})
    def post(self, request: Request) -> Response:
        """Open a session. Your runtime drives it (201), or a worker of the service does (202)."""
        payload = self.payload(SessionIn)
        if payload["driver"] == Driver.SERVER:
            due = backlog.request(self.agent)
            due.tenant = self.agent.tenant
            return Response(AgentOut(due).data, status.HTTP_202_ACCEPTED)
        opened = sessions.open_session(self.agent, trigger=DueReason.AGENT, mode=payload["mode"], driver=Driver.RUNTIME)
        return _response(opened, status.HTTP_201_CREATED)


class OneSession(AgentView):
    @extend_schema(operation_id="sessions_read", responses=SessionOut)
    def get(self, request: Request, number: int) -> Response:
        """Read a session's state and figures, without content."""
        return _response(knife.find(self.agent, number))


class Briefing(AgentView):
    @extend_schema(operation_id="sessions_briefing", parameters=[BriefingQuery], responses=BriefingOut)
    def get(self, request: Request, number: int) -> Response:
        """Read the current batch: messages and tools for your model. The model may edit the memories in this batch."""
        form = {"openai": openai.tool, "anthropic": anthropic.tool}[self.query(BriefingQuery)["format"]]
        briefing = knife.briefing(self.agent, number)
        messages, tools = MessageOut(briefing.messages, many=True).data, [form(tool) for tool in briefing.tools]
        return Response({"messages": messages, "tools": tools, "batch": briefing.batch, "batches": briefing.batches})


class Call(AgentView):
    @extend_schema(operation_id="sessions_call", request=CallIn, responses=CallOut, parameters=[IDEMPOTENCY_KEY])
    def post(self, request: Request, number: int, tool: str) -> Response:
        """Carry out a tool call of the model. A refused call changes no memory, and the response says why.

        `apply` makes up to 100 edits in one call. Each edit is checked, made and answered by itself.
        """
        payload = self.payload(CallIn)
        arguments = payload["arguments"] if isinstance(payload["arguments"], dict) else None
        reply, is_last = payload["reply"], payload["last"]
        result = knife.call(self.agent, number, tool, arguments, reply=reply, is_last=is_last, kept=self.kept())
        return Response(CallOut(result).data)


class Abort(AgentView):
    @extend_schema(operation_id="sessions_abort", request=AbortIn, responses=SessionOut)
    def post(self, request: Request, number: int) -> Response:
        """End the session early. Its edits are kept."""
        return _response(knife.abort(self.agent, number, self.payload(AbortIn)["reason"]))


def _response(session: RefinementSession, status_code: int = status.HTTP_200_OK) -> Response:
    return Response(_as_json([session])[0], status_code)


def _as_json(rows: list[RefinementSession]) -> list[Any]:
    undone_sessions.mark(rows)
    return list(SessionOut(rows, many=True).data)
