"""API for a tenant's programs: create and configure agents, issue a first key, revoke or suspend keys. This API
reads no content."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.agents import lifecycle
from memory.api.base.bodies import OPTIONAL_TEXT, Body, Boolean, Duration, Text, Whole
from memory.api.base.views import TenantView, describe_list, listed
from memory.errors import NotFound
from memory.models import Agent
from refinement.api.agent import LANGUAGE, AgentOut, LogIn, changed
from refinement.api.keys import KeyOut, LabelIn, key_json
from refinement.llm.catalog import parse as parse_model

MAX_PAGE = 200


class SettingsIn(LogIn):
    """Settings that a tenant may change: budget, target, schedule, limits and log settings."""

    budget_tokens = Whole(min_value=1, max_value=2**31 - 1, required=False)
    target_tokens = Whole(min_value=1, max_value=2**31 - 1, required=False)
    refine_every = Duration(required=False, allow_null=True, help_text="an hour to ten years, or null")
    paused = Boolean(required=False)
    max_changes = Whole(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    max_steps = Whole(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    max_searches = Whole(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    max_failed_calls = Whole(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    max_seconds = Whole(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    max_model_tokens = Whole(min_value=0, required=False, allow_null=True)


class NewAgentIn(SettingsIn):
    agent = Text(max_length=64, help_text="lower-case letters, digits, '-' and '_'")
    model = Text(max_length=200, help_text="provider/model-name")
    language = Text(max_length=32, required=False, help_text=LANGUAGE)
    steward = serializers.EmailField(required=False)


class NewAgentOut(AgentOut, KeyOut):
    key = serializers.CharField(help_text="the agent's first key, shown only once")


class AgentsQuery(Body):
    cursor = Text(max_length=64, **OPTIONAL_TEXT)
    limit = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=100)


class Agents(TenantView):
    @describe_list("agents_list", AgentsQuery, "AgentsOut", AgentOut)
    def get(self, request: Request) -> Response:
        """List the tenant's agents, sorted by name."""
        query = self.query(AgentsQuery)
        rows = Agent.objects.select_related("tenant").filter(tenant=self.tenant, slug__gt=query["cursor"])
        found = rows.order_by("slug")[: query["limit"] + 1]
        return listed(found, query["limit"], "slug", lambda page: AgentOut(page, many=True).data)

    @extend_schema(operation_id="agents_create", request=NewAgentIn, responses={201: NewAgentOut})
    def post(self, request: Request) -> Response:
        """Create an agent. Its first key is shown only once. The runtime exchanges this key for its own key."""
        payload = self.payload(NewAgentIn)
        parse_model(payload["model"])
        tenant, payload = self.tenant, payload | {"actor": self.actor, "tenant_id": self.tenant.pk}
        agent, key = lifecycle.create(tenant.slug, payload.pop("agent"), **payload)
        agent.refresh_from_db()
        return Response(AgentOut(agent).data | key_json(key), status.HTTP_201_CREATED)


class _OneAgent(TenantView):
    def agent(self, slug: str) -> Agent:
        """Return the tenant's agent with this name. Raises NotFound."""
        found = Agent.objects.select_related("tenant").filter(tenant=self.tenant, slug=slug).first()
        if found is None:
            raise NotFound("There is no agent with this name.")
        return found


class OneAgent(_OneAgent):
    @extend_schema(operation_id="agents_read", responses=AgentOut)
    def get(self, request: Request, slug: str) -> Response:
        """Read an agent's settings and figures, without content."""
        return Response(AgentOut(self.agent(slug)).data)

    @extend_schema(operation_id="agents_change", request=SettingsIn, responses=AgentOut)
    def patch(self, request: Request, slug: str) -> Response:
        """Change an agent's budget, target, schedule, limits or log settings. The agent can also be paused."""
        return changed(self.agent(slug), self.actor, self.payload(SettingsIn))


class AgentKeys(_OneAgent):
    @extend_schema(operation_id="agents_key_issue", request=LabelIn, responses={201: KeyOut})
    def post(self, request: Request, slug: str) -> Response:
        """Issue a key for an agent whose silo is not in use yet. Its earlier keys end. Later, only the agent's side can
        issue keys."""
        key = lifecycle.first_key(self.agent(slug), self.actor, label=self.payload(LabelIn)["label"])
        return Response(key_json(key), status.HTTP_201_CREATED)


class OneAgentKey(_OneAgent):
    @extend_schema(operation_id="agents_key_revoke", responses={204: None})
    def delete(self, request: Request, slug: str, prefix: str) -> Response:
        """Revoke an agent's key, but not its last key."""
        lifecycle.revoke_key(self.agent(slug), prefix, self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SuspendKeys(_OneAgent):
    @extend_schema(operation_id="agents_keys_suspend", request=None, responses=AgentOut)
    def post(self, request: Request, slug: str) -> Response:
        """Suspend all keys of an agent. They open nothing. Only an owner can lift the suspension, in the admin."""
        return Response(AgentOut(lifecycle.suspend_keys(self.agent(slug), self.actor)).data)
