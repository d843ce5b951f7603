"""What of the agent's memory might be discarded, and what its side decides of it (seed 004, "Cleanup Policy")."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, List, Numbers, Whole
from memory.api.base.memory_out import CATEGORIES
from memory.api.base.views import AgentView
from memory.recording import cleanup

MOST = 500  # numbers in one request


class Asked(Body):
    category = Choice(CATEGORIES, required=False)


class SeenIn(Body):
    """A memory and its listed version."""

    id = Whole(min_value=1)
    version = Whole(min_value=1)


class DecisionIn(Body):
    """Each memory is named by its number. One decision for all memories is not possible."""

    keep = List(
        child=Whole(min_value=1), max_length=MOST, required=False, help_text="not suggested again for some time"
    )
    discard = List(child=Whole(min_value=1), max_length=MOST, required=False, help_text="can be restored")
    expect = List(
        child=SeenIn(),
        max_length=MOST,
        required=False,
        help_text="the listed version of each memory to discard; a changed one is refused (stale_memory)",
    )


class SuggestionOut(serializers.Serializer[Any]):
    """A memory that is older than suggested, without its content."""

    id = serializers.IntegerField(source="number", help_text="the memory's number")
    version = serializers.IntegerField(help_text="pass it in `expect`")
    category = serializers.ChoiceField(CATEGORIES)
    project = serializers.CharField(allow_blank=True)
    age_days = serializers.IntegerField()
    retention_days = serializers.IntegerField(help_text="how many days its category suggests keeping it")
    importance = serializers.ChoiceField([each.name.lower() for each in cleanup.Importance])
    tokens = serializers.IntegerField()
    recalled = serializers.IntegerField(help_text="how often retrieval returned it")
    reason = serializers.CharField()


class CleanupOut(serializers.Serializer[Any]):
    suggestions = SuggestionOut(many=True, help_text="at most `batch_cleanup_limit`, least important first")
    more = serializers.IntegerField(help_text="how many more memories would be suggested after these")
    kept_back = serializers.IntegerField(help_text="how many old memories are held back because they are important")


class DecidedOut(serializers.Serializer[Any]):
    kept = Numbers()
    discarded = Numbers()
    entry = serializers.IntegerField(source="seq", allow_null=True, help_text="audit entry, if anything was discarded")


class Cleanup(AgentView):
    @extend_schema(operation_id="cleanup_list", parameters=[Asked], responses=CleanupOut)
    def get(self, request: Request) -> Response:
        """List memories that are older than their category suggests. Nothing is discarded automatically."""
        review = cleanup.review(self.agent, category=self.query(Asked).get("category"), is_read=True)
        suggestions = [each.as_record() for each in review.suggestions]
        found = {"suggestions": suggestions, "more": review.more, "kept_back": review.kept_back}
        return Response(CleanupOut(found).data)

    @extend_schema(operation_id="cleanup_decide", request=DecisionIn, responses=DecidedOut)
    def post(self, request: Request) -> Response:
        """Keep or discard suggested memories by number, in the listed version; all or none."""
        payload = self.payload(DecisionIn)
        expect = {each["id"]: each["version"] for each in payload.get("expect", ())}
        keep, discard = payload.get("keep", ()), payload.get("discard", ())
        done = cleanup.decide(self.agent, keep, discard, self.actor, expect=expect)
        return Response(DecidedOut(done).data)
