"""How connections are taken in: a thread is given a request that is here whole, and waits for no client.

gunicorn's own worker gives a thread a connection as soon as something has come over it; half a request, or one whose
body comes slowly, would keep that thread from everybody else. Here what comes is collected in memory (never on disk:
it is content) while the process does other things. A body of more than HELD is read by the thread as it comes, and an
answer is written as fast as it is taken; a client that stands still, or drips, is given up. Nor does the process wait
for clients to close, as gunicorn's own does, or end when it has no descriptor left.
"""

from __future__ import annotations

import errno
import re
import selectors
import struct
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from socket import SHUT_RD, SHUT_WR, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, socket
from typing import Any

import httptools
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

WHOLE_SECONDS = 30.0  # after which a request is to be here, or HELD of it
STILL_SECONDS = 20  # that a thread waits for the next bytes of a body, or for a client to take some of its answer
HELD = 2**18  # bytes of a request that are collected: times 1,000 connections, what a process may come to hold of them
SLOWEST = 10_000  # bytes a second of a longer body, on average, once STILL_SECONDS are over
SPARE = 16  # descriptors for what requests open, once there were none left
DRAIN_SECONDS = 0.05  # for the rest of a body that nobody asked for, which is as a rule here
LINGER_SECONDS = 2.0  # that a client has to close once it has its last answer, or it might not come to read it
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

_EXPECT = re.compile(rb"\r\nexpect:[^\r\n]*", re.IGNORECASE)


class Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threads; their requests are collected for them, and nobody is waited for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.lingering: deque[Any] = deque()

    def accept(self, listener: socket) -> None:
        if self.cfg.is_ssl:  # what comes is not the request, until a thread has opened it
            super().accept(listener)
            return
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # another process has it; it is gone
            return
        except OSError as failure:
            if failure.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.log.warning("no file descriptor is left for another connection")
            self._keep_fewer()
            time.sleep(DRAIN_SECONDS)  # it is still there to be accepted, and would be at once
            return
        for option in (SO_RCVTIMEO, SO_SNDTIMEO):
            client.setsockopt(SOL_SOCKET, option, struct.pack("ll", STILL_SECONDS, 0))
        self.nr_conns += 1
        self._await(_Connection(self.cfg, client, address, listener.getsockname()))
        if self.nr_conns >= self.worker_connections:
            self._make_room()

    def on_client_socket_readable(self, conn: Any, client: socket) -> None:
        """A connection that was kept, over which the next request comes."""
        if self.cfg.is_ssl:
            super().on_client_socket_readable(conn, client)
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        if not self._arrived(conn):
            self._await(conn)

    def on_pending_socket_readable(self, conn: Any, client: socket) -> None:
        if self.cfg.is_ssl:
            super().on_pending_socket_readable(conn, client)
        elif self._arrived(conn):
            self.poller.unregister(client)
            self.pending_conns.remove(conn)

    def finish_request(self, conn: Any, future: Future[bool]) -> None:
        """A thread is done with it: the next request on it is collected anew, or it is closed."""
        if self.cfg.is_ssl:
            super().finish_request(conn, future)
        elif future.cancelled() or future.exception() or not future.result():
            self._linger(conn)
        elif left := conn.parser.unreader.take_buffered():
            conn.sock.setblocking(False)
            if conn.take(left):
                conn.hand_over()
                self.enqueue_req(conn)
            else:
                self._await(conn)
        else:
            super().finish_request(conn, future)

    def murder_pending(self) -> None:
        now = time.monotonic()
        for conn in self.pending_conns:
            if conn.timeout > now:
                break  # they are in the order of their times
            if getattr(conn, "early", b""):
                with suppress(OSError):
                    conn.sock.send(TOO_SLOW)
        super().murder_pending()
        while self.lingering and self.lingering[0].timeout <= now:
            self._forget(self.lingering.popleft())

    def _cap_keepalive(self, deadline: float) -> None:
        """A worker that stops waits for what is under way, not for what nobody has begun to send."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """Whether the thread is at the next request's beginning; a body that is still to come is not waited for."""
        return bool(keepalive and conn.parser.finish_body(deadline=time.monotonic() + DRAIN_SECONDS))

    def _keep_fewer(self) -> None:
        """From now on, so that descriptors are left for files and databases, too."""
        self.worker_connections = max(1, self.nr_conns - SPARE)
        while self.nr_conns >= self.worker_connections and self._make_room():
            pass

    def _make_room(self) -> bool:
        """Close whoever has been silent for longest, before its first request or between two; whether there was one."""
        for waiting in (self.pending_conns, self.keepalived_conns):
            if waiting:
                self._forget(waiting.popleft())
                return True
        return False

    def _linger(self, conn: Any) -> None:
        """Close it once the client has, or soon: closed at once, its last answer could be lost."""
        conn.timeout = time.monotonic() + LINGER_SECONDS
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(SHUT_WR)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._drain, conn))
        except (OSError, ValueError):  # gone, or closed by the thread
            self.nr_conns -= 1
            conn.close()
            return
        self.lingering.append(conn)

    def _drain(self, conn: Any, client: socket) -> None:
        try:
            came = client.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self.lingering.remove(conn)
            self._forget(conn)

    def _forget(self, conn: Any) -> None:
        with suppress(KeyError, OSError, ValueError):
            self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def _await(self, conn: _Connection) -> None:
        conn.timeout = time.monotonic() + WHOLE_SECONDS
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def _arrived(self, conn: _Connection) -> bool:
        """Take what has come. True when there is nothing more to wait for: a thread has it, or the client is gone."""
        try:
            came = conn.sock.recv(HELD)
        except BlockingIOError:
            return False
        except OSError:
            came = b""
        if came and not conn.take(came):
            return False
        if conn.early:
            conn.hand_over()
            self.enqueue_req(conn)
        else:
            self.nr_conns -= 1
            conn.close()
        return True


class _Connection(TConn):  # type: ignore[misc]
    """One over which requests come, and what has come of the next."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.data_ready = True  # whenever a thread has it
        self._begin()

    def _begin(self) -> None:
        self.early = bytearray()
        self._is_whole = self._expects = self._waits = False
        self._reader = httptools.HttpRequestParser(self)

    def take(self, came: bytes) -> bool:
        """Whether a thread can go on with it."""
        self.early += came
        try:
            self._reader.feed_data(came)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError:  # gunicorn will say what is wrong with it, and is to wait for nothing more
            with suppress(OSError):
                self.sock.shutdown(SHUT_RD)
            return True
        if self._waits:
            self._let_it_send()
        return self._is_whole or len(self.early) >= HELD

    def _let_it_send(self) -> None:
        """Answer `Expect: 100-continue` here, once: a thread would say it, and then wait for the body."""
        self._waits = False
        with suppress(OSError):
            self.sock.send(GO_ON)
        head, end, body = bytes(self.early).partition(b"\r\n\r\n")
        self.early = bytearray(_EXPECT.sub(b"", head) + end + body)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._expects |= name.lower() == b"expect" and value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self._waits = self._expects and not self._is_whole  # a request that follows one which is here has its turn

    def on_message_complete(self) -> None:
        self._is_whole = True

    def hand_over(self) -> None:
        """Give gunicorn's own parser what has come; what it reads beyond must not drip."""
        self.init()
        unreader = self.parser.unreader
        unreader.unread(bytes(self.early))
        unreader.chunk = _Paced(type(unreader).chunk.__get__(unreader))
        self._begin()


class _Paced:
    """Reads from a client, as long as it is not too slow on the whole."""

    def __init__(self, chunk: Any) -> None:
        self._chunk, self._bytes = chunk, 0
        self._began: float | None = None  # with the first read: until then it waited for a thread

    def __call__(self, size_hint: int | None = None) -> bytes:
        """Raises TimeoutError."""
        if self._began is None:
            self._began = time.monotonic()
        data: bytes = self._chunk(size_hint)
        self._bytes += len(data)
        if time.monotonic() - self._began > STILL_SECONDS + self._bytes / SLOWEST:
            raise TimeoutError(errno.ETIMEDOUT, "the client sends too slowly")
        return data
