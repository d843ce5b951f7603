"""URLs of sessions and dreams, as in Anthropic's API."""

from django.urls import path

from refinement.api.dreams import sessions

urlpatterns = [path("sessions/<str:session>", sessions.OneSession.as_view())]
