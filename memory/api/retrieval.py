"""What of the agent's memory bears on a question, for its prompt (seed 004, "Memory Retrieval Process")."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.access.authentication import require_valid_key
from memory.api.base.bodies import Body, List, Text, Whole
from memory.api.base.views import AgentView
from memory.api.memories import MAX_FOUND, MAX_QUERY, QUERY, FoundOut
from memory.policy.validation import MAX_TAG, MAX_TAGS
from memory.recording import retrieval


class RetrieveIn(Body):
    query = Text(max_length=MAX_QUERY, allow_blank=True, help_text=QUERY)
    project = Text(max_length=100, required=False, allow_blank=True, help_text="the current project; default: none")
    limit = Whole(
        min_value=1, max_value=MAX_FOUND, required=False, help_text="at most `search.max_results`, the default"
    )
    max_tokens = Whole(min_value=0, required=False, help_text="most tokens of the memories together")
    tags = List(child=Text(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)


class RecalledOut(FoundOut):
    recalled = serializers.IntegerField(help_text="how often it was returned, including now; 0 if that is not recorded")


class RetrievedOut(serializers.Serializer[Any]):
    results = RecalledOut(many=True, help_text="best first")
    block = serializers.CharField(allow_blank=True, help_text="the same memories as text for a prompt")
    tokens = serializers.IntegerField(help_text="tokens of these memories")
    left_out = serializers.IntegerField(help_text="number of memories found that do not fit")


class Retrieve(AgentView):
    @extend_schema(operation_id="memories_retrieve", request=RetrieveIn, responses=RetrievedOut)
    def post(self, request: Request) -> Response:
        """Find what bears on a question in a project, and note that it was handed out.

        The query is content: it travels in the body, and is kept nowhere.
        """
        payload = self.payload(RetrieveIn)
        require_valid_key()  # the body may have come long after the key
        found = retrieval.retrieve(self.agent, payload.pop("query"), **payload)
        results = [
            read.to_dict() | {"score": read.score, "recalled": found.times.get(read.memory.number, 0)}
            for read in found.reads
        ]
        return Response({"results": results, "block": found.block, "tokens": found.tokens, "left_out": found.left_out})
