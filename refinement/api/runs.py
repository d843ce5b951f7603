"""API of the log of an agent's runs, and of the reports that `gc` writes about this log."""

from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Page, Text
from memory.api.base.views import IDEMPOTENCY_KEY, AgentView, describe_list, listed, newest_first
from memory.errors import NotFound
from memory.models import Agent
from memory.policy import switches
from memory.policy.validation import MAX_CONTENT
from memory.run_log import runs as logbook
from refinement import gc_reports
from refinement.models import GcReport


class RunIn(Body):
    task = Text(max_length=MAX_CONTENT, help_text="the task; kept on one line of at most 2,000 characters")
    result = Text(max_length=None, allow_blank=True, help_text="the result; its first 1,000 characters are kept")


class RunOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True, help_text="number of the journal memory; null for a file")


class Runs(AgentView):
    @extend_schema(operation_id="runs_log", request=RunIn, responses={201: RunOut}, parameters=[IDEMPOTENCY_KEY])
    def post(self, request: Request) -> Response:
        """Log a run in the agent's memory file. If the agent has no memory file, the run is logged in the journal."""
        payload = self.payload(RunIn)
        task, result = payload["task"], payload["result"]
        logbook.body(task, result)  # before the file is created
        with logbook.locked_file(self.agent) as file:

            def write(agent: Agent) -> list[int]:
                number = logbook.log_run(agent, task, result, self.actor, file)
                return [] if number is None else [number]

            numbers = self.once(write)
        return Response({"id": numbers[0] if numbers else None}, status.HTTP_201_CREATED)


class ReportOut(serializers.Serializer[Any]):
    """A model's report on the log, in three sections."""

    id = serializers.IntegerField(source="number")
    at = serializers.DateTimeField()
    model = serializers.CharField()
    entries = serializers.IntegerField(help_text="number of entries in the log")
    left_out = serializers.IntegerField(help_text="number of oldest entries that did not fit into the model's context")
    is_withdrawn = serializers.BooleanField(help_text="its text was removed, because it may quote a redacted memory")
    patterns_found = serializers.CharField(allow_blank=True)
    repeated_work = serializers.CharField(allow_blank=True)
    recommendations = serializers.CharField(allow_blank=True)
    missing = serializers.ListField(child=serializers.CharField(), help_text="sections that the model left out")
    text = serializers.CharField(allow_blank=True, help_text="the whole report")


class Reports(AgentView):
    @describe_list("gc_reports_list", Page, "ReportsOut", ReportOut)
    def get(self, request: Request) -> Response:
        """List gc reports: a model's reports on the log of runs. The newest is first."""
        query = self.query(Page)
        found = newest_first(GcReport, self.agent, query)
        return listed(found, query["limit"], "number", partial(_as_json, self.agent))


class OneReport(AgentView):
    @extend_schema(operation_id="gc_reports_read", responses=ReportOut)
    def get(self, request: Request, number: int) -> Response:
        """Read a gc report."""
        switches.require_on(self.agent)
        report = GcReport.objects.filter(agent_id=self.agent.pk, number=number).first()
        if report is None:
            raise NotFound("There is no report with this number.")
        return Response(_as_json(self.agent, [report])[0])


def _as_json(agent: Agent, reports: list[GcReport]) -> list[dict[str, Any]]:
    return [_report(*each) for each in zip(reports, gc_reports.opened(agent, reports), strict=True)]


def _report(report: GcReport, text: str) -> dict[str, Any]:
    sections = gc_reports.sections(text)
    is_withdrawn = report.withdrawn_at is not None
    return {
        "id": report.number,
        **{name: getattr(report, name) for name in ("at", "model", "entries", "left_out")},
        "is_withdrawn": is_withdrawn,
        **{name: sections.get(name, "") for name in gc_reports.SECTIONS},
        "missing": [] if is_withdrawn else [head for name, head in gc_reports.SECTIONS.items() if name not in sections],
        "text": text,
    }
