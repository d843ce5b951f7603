"""What of the agent's memory might be discarded, and what its side decides of it (seed 004, "Cleanup Policy")."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, List, Whole
from memory.api.base.memory_out import CATEGORIES
from memory.api.base.views import AgentView
from memory.recording import cleanup

MOST = 500  # numbers in one request


class Asked(Body):
    category = Choice(CATEGORIES, required=False)


class SeenIn(Body):
    """A memory as it was listed."""

    id = Whole(min_value=1)
    version = Whole(min_value=1)


class DecisionIn(Body):
    """By number, and each for itself: there is no way to decide of all of them."""

    keep = List(child=Whole(min_value=1), max_length=MOST, required=False, help_text="not suggested again for a while")
    discard = List(child=Whole(min_value=1), max_length=MOST, required=False, help_text="they can be restored")
    expect = List(
        child=SeenIn(),
        max_length=MOST,
        required=False,
        help_text="what was seen, of each that is to be discarded: one that was changed since is refused (stale)",
    )


class SuggestionOut(serializers.Serializer[Any]):
    """A memory that is older than suggested; of nothing that it says."""

    id = serializers.IntegerField(source="number", help_text="the memory's")
    version = serializers.IntegerField(help_text="to be named in expect")
    category = serializers.ChoiceField(CATEGORIES)
    project = serializers.CharField(allow_blank=True)
    age_days = serializers.IntegerField()
    retention_days = serializers.IntegerField(help_text="for how many it is suggested to keep it")
    importance = serializers.ChoiceField([each.name.lower() for each in cleanup.Importance])
    tokens = serializers.IntegerField()
    recalled = serializers.IntegerField(help_text="how often retrieval handed it out")
    reason = serializers.CharField()


class CleanupOut(serializers.Serializer[Any]):
    suggestions = SuggestionOut(many=True, help_text="at most batch_cleanup_limit, least important first")
    more = serializers.IntegerField(help_text="that would be suggested after these")
    kept_back = serializers.IntegerField(help_text="that are older than suggested, and important")


class DecidedOut(serializers.Serializer[Any]):
    kept = serializers.ListField(child=serializers.IntegerField())
    discarded = serializers.ListField(child=serializers.IntegerField())
    entry = serializers.IntegerField(
        source="seq", allow_null=True, help_text="of the trail; null where nothing was discarded"
    )


class Cleanup(AgentView):
    @extend_schema(operation_id="cleanup_list", parameters=[Asked], responses=CleanupOut)
    def get(self, request: Request) -> Response:
        """List memories older than is suggested for their category. Nothing is ever discarded by itself."""
        review = cleanup.review(self.agent, category=self.asked(Asked).get("category"), is_read=True)
        suggestions = [each.as_record() for each in review.suggestions]
        found = {"suggestions": suggestions, "more": review.more, "kept_back": review.kept_back}
        return Response(CleanupOut(found).data)

    @extend_schema(operation_id="cleanup_decide", request=DecisionIn, responses=DecidedOut)
    def post(self, request: Request) -> Response:
        """Keep some of what is suggested, and discard some, each by its number and as it was seen; all or none."""
        given = self.given(DecisionIn)
        expect = {each["id"]: each["version"] for each in given.get("expect", ())}
        done = cleanup.decide(self.agent, given.get("keep", ()), given.get("discard", ()), self.actor, expect=expect)
        return Response(DecidedOut(done).data)
