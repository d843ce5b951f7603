"""URLs of sessions and dreams, as in Anthropic's API."""

from django.urls import path

from refinement.api.dreams import dreams, sessions

urlpatterns = [
    path("dreams", dreams.Dreams.as_view()),
    path("dreams/<str:dream>", dreams.OneDream.as_view()),
    path("dreams/<str:dream>/cancel", dreams.Cancel.as_view()),
    path("dreams/<str:dream>/archive", dreams.Archive.as_view()),
    path("sessions/<str:session>", sessions.OneSession.as_view()),
]
