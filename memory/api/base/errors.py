"""Errors of the API. All have one format and a stable code. They contain no content of memories.

This module gives each domain error its status, and keeps the code and the message. An unexpected error is a 500 without
details. The log has the type of the error and its place in the code.
"""

from typing import Any

import structlog
from django.core.exceptions import DisallowedHost, SuspiciousOperation
from django.db import Error as DatabaseError
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_standardized_errors.formatter import ExceptionFormatter
from drf_standardized_errors.handler import ExceptionHandler
from rest_framework import exceptions, status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.response import Response

from audit.waiting import is_lock_timeout
from config import plain
from config.errors import Busy, ConfigurationError, DomainError
from memory import errors
from memory.agents.rule_changes import QUESTION
from memory.api.base.views import CHALLENGE
from memory.errors import CategoryDisabled, FileFault, Invalid, KeyRejected, MemoryDisabled
from refinement.errors import BadCall, UnknownSession
from refinement.llm.base import ModelNotConfigured

log = structlog.get_logger("palimpsest.api")

_STATUS: dict[int, tuple[type[DomainError], ...]] = {  # others: 409
    401: (KeyRejected,),
    403: (errors.PersonRequired,),
    404: (errors.NotFound, errors.UnknownMemory, errors.UnknownEntry, UnknownSession),
    409: (errors.Erased,),
    422: (Invalid, errors.SlowSearch, ModelNotConfigured, BadCall),
    503: (errors.SealBroken, ConfigurationError),
}

_FRAMEWORKS: dict[type[Exception], str] = {  # the framework's own messages repeat parts of the request
    exceptions.MethodNotAllowed: "This path does not allow this method.",
    exceptions.NotAuthenticated: "Send the header: Authorization: Bearer KEY",
    exceptions.UnsupportedMediaType: "The body has a type, charset or encoding that this path does not accept.",
}
_FILE = "The agent's memory file or vault cannot be used. The service's log says why."


class Unavailable(APIException):
    """The database or a file of the agent cannot be used now."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"
    default_detail = "The database cannot be used now. Perhaps its disk is full. Try again. Operators: see /readyz."


class ChangedMeanwhile(APIException):
    """The version in `If-Match` is not the memory's current version."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed_meanwhile"
    default_detail = "The memory has changed since you read it. Read it again."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that Django refuses. Usually, the reason is an unknown host name."""
    if not request.path_info.startswith(("/api/", "/mcp", "/v1/")):
        return plain.bad_request(request, exception)
    detail = "The request is not valid, for example because it has too many parameters."
    if isinstance(exception, DisallowedHost):
        detail = "Bad request. Check that ALLOWED_HOSTS contains the host name of the request."
    problem = {"code": "bad_request", "detail": detail, "attr": None}
    return JsonResponse({"type": "client_error", "errors": [problem]}, status=status.HTTP_400_BAD_REQUEST)


class Handler(ExceptionHandler):
    """Gives each exception its status, and logs the faults of the service."""

    def convert_known_exceptions(self, exc: Exception) -> Exception:
        if isinstance(exc, FileFault):
            return Unavailable(_FILE, FileFault.code)
        if isinstance(exc, Busy):
            return exceptions.Throttled(1)
        if isinstance(exc, DomainError):
            return _refusal(exc)
        if isinstance(exc, SuspiciousOperation):
            return exceptions.ParseError("The request has too many parameters.")
        if isinstance(exc, OperationalError) and is_lock_timeout(exc):
            return Unavailable("Another operation has locked this agent. Try again later.")
        if isinstance(exc, DatabaseError):
            log.error("database failed", exc_info=(type(exc), exc, exc.__traceback__))
            return Unavailable()
        if isinstance(exc, ValidationError):
            exc.status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
        if isinstance(exc, APIException) and type(exc) in _FRAMEWORKS:
            exc.detail = ErrorDetail(_FRAMEWORKS[type(exc)], exc.default_code)
        converted: Exception = super().convert_known_exceptions(exc)
        return converted

    def report_exception(self, exc: APIException, response: Response) -> None:
        """Log only the type and place of an error (`config.logs`). Django's own report would contain the request."""
        if isinstance(self.exc, FileFault):
            view: Any = self.context["view"]
            log.error("file not used", agent=view.agent.pk, code=self.exc.code, reason=self.exc.reason)
        elif self.exc is not exc and response.status_code >= status.HTTP_500_INTERNAL_SERVER_ERROR:
            log.error("request failed", exc_info=(type(self.exc), self.exc, self.exc.__traceback__))


def _refusal(error: DomainError) -> APIException:
    """Convert a domain error to an APIException. For a wrong field, `detail` is a dictionary with this field as key."""
    detail: Any = str(error)
    if isinstance(error, Invalid):
        detail = {error.field: error.problem}
    elif isinstance(error, ModelNotConfigured):
        detail = {error.field: detail}
    refusal = APIException(detail, error.code)
    refusal.status_code = next((code for code, kinds in _STATUS.items() if isinstance(error, kinds)), 409)
    if isinstance(error, KeyRejected):
        refusal.auth_header = CHALLENGE  # type: ignore[attr-defined]  # read by the exception handler
    return refusal


class Formatter(ExceptionFormatter):
    """If memory or a category is off, adds a question to the error. The question is for a person."""

    def run(self) -> dict[str, Any]:
        response: dict[str, Any] = super().run()
        is_off = isinstance(self.original_exc, MemoryDisabled | CategoryDisabled)
        return response | {"prompt": QUESTION} if is_off else response
