"""Errors as the API tells them: one form, stable codes, no content.

A domain error keeps its code and message; which status it is stands here, once. What nobody foresaw is a 500 that says
nothing but that, and is logged by its type and place.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.db import Error as DatabaseTrouble
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_standardized_errors.formatter import ExceptionFormatter
from drf_standardized_errors.handler import ExceptionHandler
from drf_standardized_errors.types import ErrorResponse
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, MethodNotAllowed, UnsupportedMediaType, ValidationError
from rest_framework.response import Response

from config import plain
from config.errors import ConfigurationError, DomainError
from memory.agents.rule_changes import QUESTION
from memory.api.base.keys import CHALLENGE
from memory.errors import (
    CategoryDisabled,
    Erased,
    Invalid,
    KeyRejected,
    MemoryDisabled,
    NotFound,
    PersonsOnly,
    SealBroken,
    UnknownEntry,
    UnknownMemory,
)
from refinement.errors import BadCall, UnknownSession
from refinement.llm.base import ModelNotConfigured

log = structlog.get_logger("palimpsest.api")

_STATUS = {
    NotFound: status.HTTP_404_NOT_FOUND,
    UnknownMemory: status.HTTP_404_NOT_FOUND,
    UnknownEntry: status.HTTP_404_NOT_FOUND,
    UnknownSession: status.HTTP_404_NOT_FOUND,
    Invalid: status.HTTP_422_UNPROCESSABLE_ENTITY,
    ModelNotConfigured: status.HTTP_422_UNPROCESSABLE_ENTITY,
    KeyRejected: status.HTTP_401_UNAUTHORIZED,
    BadCall: status.HTTP_422_UNPROCESSABLE_ENTITY,
    Erased: status.HTTP_409_CONFLICT,
    PersonsOnly: status.HTTP_403_FORBIDDEN,
    SealBroken: status.HTTP_503_SERVICE_UNAVAILABLE,
    ConfigurationError: status.HTTP_503_SERVICE_UNAVAILABLE,
}

_FRAMEWORKS: dict[type[APIException], str] = {
    MethodNotAllowed: "This address does not know that method.",
    UnsupportedMediaType: "The body's type, charset or encoding is not one this address takes.",
}


class Told(APIException):
    """A domain error on its way out."""

    def __init__(self, error: DomainError) -> None:
        self.status_code = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
        self.field = error.field if isinstance(error, Invalid) else None
        self.prompt = QUESTION if isinstance(error, MemoryDisabled | CategoryDisabled) else ""
        if isinstance(error, ModelNotConfigured):  # over the API: of a setting alone
            self.field = "model"
        if self.status_code == status.HTTP_401_UNAUTHORIZED:
            self.auth_header = CHALLENGE
        super().__init__(error.problem if isinstance(error, Invalid) else str(error), error.code)


class Unavailable(APIException):
    """The database cannot be used just now."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"
    default_detail = "The service cannot answer just now. Try again."


class TooLate(APIException):
    """`If-Match` names another state than the memory has."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed_meanwhile"
    default_detail = "It was changed meanwhile: read it again."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """What is refused before any address is looked up: nearly always another name than the service is known by."""
    if not request.path_info.startswith("/api/"):
        return plain.bad_request(request, exception)
    detail = "The request cannot be read. Is the name in Host one of ALLOWED_HOSTS?"
    errors = [{"code": "bad_request", "detail": detail, "attr": None}]
    return JsonResponse({"type": "client_error", "errors": errors}, status=status.HTTP_400_BAD_REQUEST)


class Handler(ExceptionHandler):
    def convert_known_exceptions(self, exc: Exception) -> Exception:
        if isinstance(exc, DomainError):
            return Told(exc)
        if isinstance(exc, DatabaseTrouble):
            log.error("database failed", exc_info=(type(exc), exc, exc.__traceback__))
            return Unavailable()
        if isinstance(exc, ValidationError):
            exc.status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
        if isinstance(exc, MethodNotAllowed | UnsupportedMediaType):  # the framework quotes what was sent
            exc.detail = ErrorDetail(_FRAMEWORKS[type(exc)], exc.default_code)
        converted: Exception = super().convert_known_exceptions(exc)
        return converted

    def report_exception(self, exc: APIException, response: Response) -> None:
        """By type and place alone (`config.logs`): Django's own report would hold the request."""
        if self.exc is not exc and response.status_code >= status.HTTP_500_INTERNAL_SERVER_ERROR:
            log.error("request failed", exc_info=(type(self.exc), self.exc, self.exc.__traceback__))


class Formatter(ExceptionFormatter):
    def run(self) -> dict[str, Any]:
        told = super().run()
        if isinstance(self.exc, Told) and self.exc.field:
            for error in told["errors"]:
                error["attr"] = self.exc.field
        if isinstance(self.exc, Told) and self.exc.prompt:
            told["prompt"] = self.exc.prompt
        return dict(told)

    def format_error_response(self, error_response: ErrorResponse) -> dict[str, Any]:
        return {
            "type": error_response.type,
            "errors": [{"code": e.code, "detail": e.detail, "attr": e.attr} for e in error_response.errors],
        }
