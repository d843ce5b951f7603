"""The views, and their addresses."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.bench.bare import words
from tests.bench.bare.models import Entry, Note, Owner, hashed


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Owner, None]:
        _, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        owner = Owner.objects.filter(token=hashed(token)).first()
        if owner is None:
            raise AuthenticationFailed
        return owner, None


class NoteShape(serializers.ModelSerializer[Note]):
    class Meta:
        model = Note
        fields = ("id", "kind", "tags", "origin", "created_at", "content")


class SearchShape(serializers.Serializer[Any]):
    q = serializers.CharField(max_length=2_000)
    limit = serializers.IntegerField(min_value=1, max_value=100, default=10)


class View(APIView):
    authentication_classes = (TokenAuthentication,)


class Notes(View):
    def post(self, request: Request) -> Response:
        shape = NoteShape(data=request.data)
        shape.is_valid(raise_exception=True)
        with transaction.atomic():
            note = shape.save(owner=request.user)
            words.add(note.pk, note.content)
            Entry.objects.create(owner=request.user, operation="remembered", note=note.pk)
        return Response(shape.data, status=201)


class OneNote(View):
    def get(self, request: Request, number: int) -> Response:
        return Response(NoteShape(get_object_or_404(Note, owner=request.user, pk=number)).data)


class Search(View):
    def post(self, request: Request) -> Response:
        asked = SearchShape(data=request.data)
        asked.is_valid(raise_exception=True)
        numbers = words.find(request.user.pk, asked.validated_data["q"], asked.validated_data["limit"])
        notes = Note.objects.in_bulk(numbers)
        return Response({"results": NoteShape([notes[number] for number in numbers], many=True).data})


def empty(request: HttpRequest) -> HttpResponse:
    """What Django, gunicorn and the client take without any work of anybody's."""
    return HttpResponse()


urlpatterns = [
    path("notes", Notes.as_view()),
    path("notes/search", Search.as_view()),
    path("notes/<int:number>", OneNote.as_view()),
    path("empty", empty),
]
