"""Who asks."""

from __future__ import annotations

import hashlib

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tests.bench.bare.models import Owner


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Owner, None]:
        _, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        owner = Owner.objects.filter(token=hashed(token)).first()
        if owner is None:
            raise AuthenticationFailed
        return owner, None


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
