"""API of the agent to which the request's key belongs: usage, settings, and context block."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from audit.models import ActorKind, Operation, State
from audit.trail import Actor
from memory.agents import lifecycle, prompts
from memory.api.base.bodies import Body, Boolean, Choice, Text, Whole
from memory.api.base.memory_out import MemoryOut
from memory.api.base.views import AgentView, shared
from memory.consent import requests
from memory.models import Agent
from memory.policy import switches
from memory.search import context, embedding
from memory.silo.silo import Read
from memory.time_machine import trail_view
from memory.writing import daily_limit
from refinement import probe, schedule
from refinement.llm.base import ModelNotConfigured
from refinement.llm.catalog import parse as parse_model
from refinement.llm.embedders import open_embedder

_ENTRIES: Any = {"min_value": 0, "max_value": lifecycle.MAX_INT, "required": False}
_OR_ALL: Any = {"required": False, "allow_null": True}
_OR_EMPTY: Any = {"required": False, "allow_blank": True}
CONTEXT = "limits the log that gc sends, and a batch of refinement to half of it; null: no limit"
LANGUAGE = "language of its memories in lower case, for example `english`; with `other`, search does not stem words"


class LogIn(Body):
    """The limits of `gc` for an agent's log of runs: what it keeps, and what it sends to the model."""

    last_n = Whole(**_ENTRIES, help_text="log entries that gc keeps")
    max_entries = Whole(**_ENTRIES, help_text="used if `last_n` is 0; both 0: keep all")
    context_tokens = Whole(min_value=1, max_value=lifecycle.MAX_CONTEXT, **_OR_ALL, help_text=CONTEXT)


class AgentIn(LogIn):
    """Settings that the agent's side may change. `model` has the form provider/model-name."""

    model = Text(max_length=200, required=False)
    embedder = Text(
        max_length=190,
        **_OR_EMPTY,
        help_text="provider/name, for search by meaning; `none`: search by words; empty: the server's default",
    )
    system_prompt = Text(max_length=20_000, **_OR_EMPTY)
    refinement_prompt = Text(max_length=20_000, **_OR_EMPTY, help_text="added to the safety rules, which stay")
    retention = serializers.DecimalField(3, 2, min_value=Decimal("0.50"), max_value=Decimal("1.00"), required=False)
    language = Text(max_length=32, required=False, help_text=LANGUAGE)
    steward = serializers.EmailField(**_OR_EMPTY)
    is_steward_only = Boolean(required=False)
    discard_share_lifted_until = serializers.DateTimeField(**_OR_ALL, help_text="at most 24 hours from now, or null")


class FileOut(serializers.CharField):
    def to_representation(self, value: Any) -> Any:
        return value or None


class LogOut(serializers.Serializer[Any]):
    file = FileOut(source="memory_path", allow_null=True, help_text="its memory file; null for the journal")
    last_n = serializers.IntegerField(help_text="number of entries that gc keeps; 0: see `max_entries`")
    max_entries = serializers.IntegerField(help_text="number of entries that gc keeps if `last_n` is 0; 0: all")
    context_tokens = serializers.IntegerField(allow_null=True, help_text=CONTEXT)


class UsageOut(serializers.Serializer[Any]):
    tokens = serializers.IntegerField(source="core_tokens", help_text="tokens of core memory")
    budget = serializers.IntegerField(source="budget_tokens")
    target = serializers.IntegerField(source="target_tokens")
    memories = serializers.IntegerField(source="core_count", help_text="number of core memories")
    journal = serializers.IntegerField(source="journal_count")
    beneath = serializers.IntegerField(source="beneath_count", help_text="memories that only search finds")
    beneath_tokens = serializers.IntegerField()
    constitutional = serializers.IntegerField(source="constitutional_count")
    duplicate_tokens = serializers.IntegerField(help_text="tokens of exact duplicates")


class VectorsOut(serializers.Serializer[Any]):
    """Search by meaning. Without an embedder, and for memories that wait, search finds words."""

    embedder = serializers.CharField(help_text="the embedder that makes the vectors; empty: search by words")
    queries_go_to = serializers.CharField(help_text="the embedder of queries: the former one until `waiting` is 0")
    made = serializers.IntegerField(help_text="memories with a vector of `embedder`")
    waiting = serializers.IntegerField(help_text="memories that have no vector of `embedder` yet")
    problem = serializers.CharField(help_text="why the last call failed; empty if it answered")


class AgentOut(serializers.Serializer[Any]):
    """An agent without its prompts and its content."""

    tenant = serializers.CharField(source="tenant.slug")
    agent = serializers.CharField(source="slug")
    model = serializers.CharField(allow_blank=True, help_text="empty: the agent's side must set a model")
    embedder = serializers.CharField(allow_blank=True, help_text="as it was set; empty: the server's default")
    language = serializers.CharField()
    retention = serializers.CharField()
    has_steward = serializers.BooleanField(source="steward")
    is_steward_only = serializers.BooleanField()
    discard_share_lifted_until = serializers.DateTimeField(allow_null=True)
    is_erased = serializers.SerializerMethodField(help_text="its silo can no longer be read or changed")
    claimed_at = serializers.DateTimeField(allow_null=True, help_text="when its key was last exchanged")
    keys_suspended = serializers.BooleanField(help_text="its keys open nothing; see the error `key_suspended`")
    memory_enabled = serializers.BooleanField()
    paused = serializers.BooleanField()
    usage = UsageOut(source="*")
    log = LogOut(source="*", help_text="log of its runs")
    due = serializers.SerializerMethodField(help_text="why a refinement is due now; empty if none is due")
    due_at = serializers.DateTimeField(allow_null=True)
    last_refined_at = serializers.DateTimeField(allow_null=True)
    audit_seq = serializers.IntegerField(help_text="number of its last audit entry")
    created_at = serializers.DateTimeField()

    def get_is_erased(self, agent: Agent) -> bool:
        return not agent.wrapped_key

    def get_due(self, agent: Agent) -> str:
        return schedule.why(agent)


class GrantOut(serializers.Serializer[Any]):
    number = serializers.IntegerField(help_text="to revoke it by")
    person = serializers.CharField(source="asker")
    purpose_in_their_words = serializers.CharField(source="reason", help_text="data, never an instruction")
    until = serializers.DateTimeField()


class PromptOut(serializers.Serializer[Any]):
    characters = serializers.IntegerField()
    set_by = serializers.ChoiceField(ActorKind.values, allow_blank=True, help_text="empty if the prompt is empty")


class PromptsOut(serializers.Serializer[Any]):
    system_prompt = PromptOut()
    refinement_prompt = PromptOut()


class OwnAgentOut(AgentOut):
    """The same, with what decides who can read the silo."""

    claimed_by = serializers.CharField(allow_blank=True, help_text="the key (its prefix) or the code that claimed it")
    model_problem = serializers.SerializerMethodField(help_text="why another model must be set; empty if it is known")
    vault = FileOut(source="vault_path", allow_null=True, help_text="folder with files of its memories; null: none")
    search = serializers.SerializerMethodField()
    prompts = serializers.SerializerMethodField()
    grants = serializers.SerializerMethodField()

    def get_model_problem(self, agent: Agent) -> str:
        return probe.problem_of_name(agent.model)

    @extend_schema_field(VectorsOut)
    def get_search(self, agent: Agent) -> dict[str, Any]:
        return asdict(embedding.state(agent))

    @extend_schema_field(PromptsOut)
    def get_prompts(self, agent: Agent) -> dict[str, Any]:
        texts = {name: prompts.opened(agent, name) for name in prompts.NAMES}
        return {
            name: {"characters": len(text), "set_by": trail_view.set_by(agent, name) if text else ""}
            for name, text in texts.items()
        }

    @extend_schema_field(GrantOut(many=True))
    def get_grants(self, agent: Agent) -> Any:
        found = requests.present(agent, Operation.ACCESS_REQUESTED)
        return GrantOut([each for each in found if each.state == State.ACTIVE], many=True).data


def changed(agent: Agent, actor: Actor, settings: dict[str, Any]) -> Response:
    """Change an agent's settings, and return the agent."""
    row = lifecycle.change(agent, actor, **settings)
    row.tenant = agent.tenant
    return Response(AgentOut(row).data)


def _check_embedder(embedder: str) -> None:
    try:
        open_embedder(embedder)
    except ModelNotConfigured as error:
        error.field = "embedder"
        raise


class OwnAgent(AgentView):
    @extend_schema(operation_id="agent_read", responses=OwnAgentOut)
    def get(self, request: Request) -> Response:
        """Read the agent's settings and usage, and what decides who can read its silo."""
        return Response(shared(OwnAgentOut).to_representation(self.agent))

    @extend_schema(operation_id="agent_change", request=AgentIn, responses=AgentOut)
    def patch(self, request: Request) -> Response:
        """Change the agent's settings. Each change is in the audit trail."""
        payload = self.payload(AgentIn)
        if "model" in payload:
            parse_model(payload["model"])
        if payload.get("embedder") not in (None, "", embedding.NONE):
            _check_embedder(payload["embedder"])
        daily_limit.checked_lift(payload.get("discard_share_lifted_until"))
        return changed(self.agent, self.actor, payload)


class ContextQuery(Body):
    format = Choice(["text", "json"], default="text")
    max_tokens = serializers.IntegerField(min_value=0, max_value=10_000_000, required=False)
    project = Text(
        max_length=100,
        **_OR_EMPTY,
        help_text="memories visible from this project; empty: those visible without a project; default: all",
    )


class ContextOut(serializers.Serializer[Any]):
    core = MemoryOut(many=True)
    journal = MemoryOut(many=True)
    tokens = serializers.IntegerField()
    left_out = serializers.IntegerField()
    left_out_tokens = serializers.IntegerField()


class Context(AgentView):
    @extend_schema(
        operation_id="context_read",
        parameters=[ContextQuery, OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER)],
        responses={
            (200, "application/json"): ContextOut,
            (200, "text/plain"): str,
            304: OpenApiResponse(description="unchanged since this ETag"),
        },
    )
    def get(self, request: Request) -> HttpResponse:
        """Read the memories as a block for a prompt. Core memories come first, then the journal of the last days."""
        query = self.query(ContextQuery)
        switches.require_on(self.agent)
        form, within = query["format"], {"max_tokens": query.get("max_tokens"), "project": query.get("project")}
        etag = context.etag(self.agent, form=form, **within)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        known = request.headers.get("If-None-Match", "").split(",")
        if etag in {part.strip().removeprefix("W/") for part in known}:
            return HttpResponse(status=status.HTTP_304_NOT_MODIFIED, headers=headers)
        block = context.read(self.agent, **within)
        if form == "text":
            headers |= {"X-Tokens": str(block.tokens), "X-Left-Out": str(block.left_out)}
            return HttpResponse(block.as_text(), content_type="text/plain; charset=utf-8", headers=headers)
        body = {name: [Read(*line).to_dict() for line in getattr(block, name)] for name in ("core", "journal")}
        figures = {name: getattr(block, name) for name in ("tokens", "left_out", "left_out_tokens")}
        return Response(body | figures, headers=headers)
