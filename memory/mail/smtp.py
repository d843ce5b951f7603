"""Mail by SMTP, with a deadline of EMAIL_TIMEOUT seconds. The timeout of smtplib begins again at each byte."""

import time
from contextlib import suppress
from smtplib import SMTP, SMTP_SSL, SMTPServerDisconnected
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import Any

from django.core.mail.backends import smtp

from config.deadlines import within


class _Connection(SMTP):
    """Ends at the deadline. Then the TLS handshake, or the present command, fails."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        self._until = time.monotonic() + timeout
        found: socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._same = found.dup()  # TLS replaces the object, but not the connection
        self._timer = Timer(self._until - time.monotonic(), _shut_down, [self._same])
        self._timer.daemon = True
        self._timer.start()
        return found

    def getreply(self) -> tuple[int, bytes]:
        reply = super().getreply()
        if time.monotonic() >= self._until:  # this is a part of the reply
            self.close()
            raise SMTPServerDisconnected
        return reply

    def close(self) -> None:
        super().close()
        self._timer.cancel()
        self._same.close()


def _shut_down(connection: socket) -> None:
    with connection, suppress(OSError):  # the server closed it
        connection.shutdown(SHUT_RDWR)


class _TLSConnection(SMTP_SSL, _Connection):
    """Begins with TLS."""


class EmailBackend(smtp.EmailBackend):
    """Sends all mail of the service. An error is an OSError."""

    @property
    def connection_class(self) -> Any:
        return _TLSConnection if self.use_ssl else _Connection

    def open(self) -> bool:
        return bool(within(self.timeout, super().open))  # also the DNS lookup
