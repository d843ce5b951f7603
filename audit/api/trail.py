"""API of the agent's own audit trail. It shows each changed memory as it was before and after the change."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from audit.models import ActorKind, AuditEntry, Operation
from memory.api.base.bodies import Choice, FreeForm, Page
from memory.api.base.views import AgentView, describe_list, listed
from memory.time_machine import trail_view
from memory.time_machine.trail_view import State, Step


class TrailQuery(Page):
    operation = Choice(Operation.values, required=False)
    memory = serializers.IntegerField(min_value=1, max_value=2**53, required=False)
    session = serializers.IntegerField(min_value=1, max_value=2**53, required=False)
    since = serializers.DateTimeField(required=False, source="at__gte")


class EntryOut(serializers.Serializer[Any]):
    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor_kind = serializers.ChoiceField(ActorKind.values)
    actor = serializers.CharField(source="actor_label")
    operation = serializers.ChoiceField(Operation.values)
    session = serializers.IntegerField(allow_null=True)
    changes = serializers.IntegerField(help_text="number of changed memories")
    detail = FreeForm(help_text="numbers and names; free-form, because operations differ")


class StateOut(serializers.Serializer[Any]):
    kind = serializers.CharField()
    category = serializers.CharField()
    scope = serializers.CharField()
    project = serializers.CharField()
    tokens = serializers.IntegerField()
    constitutional = serializers.BooleanField()
    origin = serializers.DateTimeField()
    origin_latest = serializers.DateTimeField(allow_null=True)
    beneath_at = serializers.DateTimeField(allow_null=True)
    discarded_at = serializers.DateTimeField(allow_null=True)
    superseded_by = serializers.IntegerField(allow_null=True)
    content = serializers.CharField(allow_null=True, help_text="null if it was redacted")
    tags = serializers.ListField(child=serializers.CharField())


class StepOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="the memory's number")
    before = StateOut(allow_null=True, help_text="null for a new memory")
    after = StateOut(allow_null=True)


class OneEntryOut(EntryOut):
    note = serializers.CharField(allow_blank=True, help_text="facts left out on purpose, or the previous steward")
    results = StepOut(many=True)
    next = serializers.CharField(allow_null=True)


class Trail(AgentView):
    @describe_list("audit_list", TrailQuery, "EntriesOut", EntryOut)
    def get(self, request: Request) -> Response:
        """List the entries of the audit trail, without content. The oldest is first."""
        query = self.query(TrailQuery)
        after, limit = query.pop("cursor"), query.pop("limit")
        found = trail_view.page(self.agent, after=after, limit=limit + 1, **query)
        return listed(found, limit, "seq", lambda page: EntryOut(page, many=True).data)


class OneEntry(AgentView):
    @extend_schema(operation_id="audit_read", parameters=[Page], responses=OneEntryOut)
    def get(self, request: Request, seq: int) -> Response:
        """Read an audit entry, with each changed memory before and after the change."""
        query = self.query(Page)
        entry: AuditEntry = trail_view.entry(self.agent, seq)
        touched = trail_view.touched(self.agent, seq, after=query["cursor"], limit=query["limit"] + 1)
        found = trail_view.opened(self.agent, touched)
        response = listed(found, query["limit"], "number", lambda page: map(_as_json, page), weigh=Step.size)
        response.data |= EntryOut(entry).data | {"note": trail_view.note(self.agent, entry)}
        return response


def _as_json(step: Step) -> dict[str, Any]:
    return {"id": step.number, "before": _state(step.before), "after": _state(step.after)}


def _state(state: State | None) -> dict[str, Any] | None:
    if state is None:
        return None
    kept = {name: value for name, value in state.fields.items() if name in _STATE_FIELDS}
    opened = state.opened
    return kept | {"content": opened.content if opened else None, "tags": list(opened.tags) if opened else []}


_STATE_FIELDS = frozenset(StateOut().get_fields())
