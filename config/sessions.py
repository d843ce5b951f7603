"""People's sessions, in Django's table. The table does not contain the session key of the cookie, but a MAC of this
key.

So a database dump contains no key to sign in with. A row that somebody inserts with SQL is useless, because it needs
data signed with SECRET_KEY and a MAC made with the pepper.
"""

import hmac
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from config.deadlines import TOLERANCE
from config.keyring import keyring

CHARACTERS = 40  # of the column


class SessionStore(db.SessionStore):
    @property
    def key_salt(self) -> str:
        """Binds the signed data to its row. So SQL cannot copy the data of another person's session."""
        return f"{super().key_salt}/{_kept(self._session_key or '')}"

    @property
    def row_key(self) -> str:
        """The key of this session's row."""
        return _kept(self.session_key or "")

    def exists(self, session_key: str) -> bool:
        return bool(super().exists(_kept(session_key)))

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key:
            super().delete(_kept(key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.session_key = _kept(row.session_key)
        return row

    def _get_session_from_db(self) -> Session | None:
        kept, now = _kept(self.session_key or ""), timezone.now()
        last = now + timedelta(seconds=settings.SESSION_COOKIE_AGE) + TOLERANCE  # later, the clock was ahead
        row = Session.objects.filter(session_key=kept, expire_date__gt=now, expire_date__lte=last).first()
        if row is None:
            self._session_key = None
        return row


def set_end(request: HttpRequest, **_: Any) -> None:
    """Let the session end 12 hours after the sign-in. Otherwise each message would prolong it."""
    request.session.set_expiry(timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE))


def _kept(key: str) -> str:
    secret = keyring().pepper[0].secret
    return hmac.digest(secret, b"palimpsest/session" + key.encode(), "sha256").hex()[:CHARACTERS]
