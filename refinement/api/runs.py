"""The log of an agent's runs over the API: entries come in, and what `gc` found in them goes out (seed 001)."""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base import idempotency
from memory.api.base.bodies import Body, Page, Text
from memory.api.base.views import AgentView, listed
from memory.errors import FileFault, NotFound
from memory.policy import switches
from memory.policy.validation import MAX_CONTENT
from memory.run_log import runs as logbook
from memory.run_log.log_file import Appending
from refinement import gc_reports
from refinement.models import GcReport

log = structlog.get_logger("palimpsest.api")


class FileUnwritable(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = FileFault.code
    default_detail = "The agent's memory file cannot be written to; the service's log says why."


class RunIn(Body):
    task = Text(max_length=MAX_CONTENT, help_text="what was asked; kept on one line, of at most 2,000 characters")
    result = Text(max_length=None, allow_blank=True, help_text="what came of it; its first 1,000 characters are kept")


class RunOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True, help_text="the journal memory's; null in a memory file")


class Runs(AgentView):
    @extend_schema(operation_id="runs_log", request=RunIn, responses={201: RunOut}, parameters=[idempotency.PARAMETER])
    def post(self, request: Request) -> Response:
        """Write down a run: in the agent's memory file, where it has one, else in its journal."""
        given = self.given(RunIn)

        def write(file: Appending | None) -> list[int]:
            number = logbook.log_run(self.agent, given["task"], given["result"], self.actor, file)
            return [] if number is None else [number]

        logbook.body(given["task"], given["result"])  # before the file is created
        try:
            with logbook.locked_file(self.agent) as file:
                numbers = idempotency.once(request, self.agent, partial(write, file))
        except FileFault as fault:
            log.error("memory file not written", agent=self.agent.pk, code=fault.code, reason=fault.reason)
            raise FileUnwritable from None
        return Response({"id": numbers[0] if numbers else None}, status.HTTP_201_CREATED)


class ReportOut(serializers.Serializer[Any]):
    """What a model said of the log. Its three sections apart; those it left out are named."""

    id = serializers.IntegerField(source="number")
    at = serializers.DateTimeField()
    model = serializers.CharField()
    entries = serializers.IntegerField(help_text="that the log had")
    left_out = serializers.IntegerField(help_text="of them, the oldest, for want of room in the model's context")
    is_withdrawn = serializers.BooleanField(help_text="emptied, since what it may quote was redacted")
    patterns_found = serializers.CharField(allow_blank=True)
    repeated_work = serializers.CharField(allow_blank=True)
    recommendations = serializers.CharField(allow_blank=True)
    missing = serializers.ListField(child=serializers.CharField(), help_text="sections the model left out")
    text = serializers.CharField(allow_blank=True, help_text="all of it, as it came")


class ReportsOut(serializers.Serializer[Any]):
    results = ReportOut(many=True)
    next = serializers.CharField(allow_null=True)


def _shown(report: GcReport, text: str) -> dict[str, Any]:
    told = gc_reports.sections(text)
    is_withdrawn = report.withdrawn_at is not None
    return {
        "id": report.number,
        "at": report.at,
        "model": report.model,
        "entries": report.entries,
        "left_out": report.left_out,
        "is_withdrawn": is_withdrawn,
        **{name: told.found.get(name, "") for name in gc_reports.SECTIONS},
        "missing": [] if is_withdrawn else told.missing,
        "text": text,
    }


class Reports(AgentView):
    @extend_schema(operation_id="gc_reports_list", parameters=[Page], responses=ReportsOut)
    def get(self, request: Request) -> Response:
        """What models said of the agent's log, newest first."""
        asked = self.asked(Page)
        rows = GcReport.objects.filter(agent_id=self.agent.pk).order_by("-number")
        if asked["cursor"]:
            rows = rows.filter(number__lt=asked["cursor"])
        found = list(rows[: asked["limit"] + 1])
        page = found[: asked["limit"]]
        told = [_shown(*each) for each in zip(page, gc_reports.opened(self.agent, page), strict=True)]
        return listed(told, page[-1].number if len(found) > len(page) else None)


class OneReport(AgentView):
    @extend_schema(operation_id="gc_reports_read", responses=ReportOut)
    def get(self, request: Request, number: int) -> Response:
        """One of them."""
        switches.require_on(self.agent)
        report = GcReport.objects.filter(agent_id=self.agent.pk, number=number).first()
        if report is None:
            raise NotFound("There is no such report.")
        [text] = gc_reports.opened(self.agent, [report])
        return Response(_shown(report, text))
