"""A bounded load over loopback: so many clients, each with a connection kept alive, asking one thing after another.

A client is a thread that writes requests made beforehand to a socket and reads each answer to its end: what it takes
itself is measured beside what it measures (`tests/bench/api_bench.py`).
"""

import json
import math
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CLIENTS = 4
PATIENCE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, ready to be sent, and the status it must be answered with."""

    bytes: bytes
    status: int


def request(method: str, path: str, key: str, body: Any = None, status: int = 200, **headers: str) -> Wanted:
    sent = b"" if body is None else json.dumps(body).encode()
    given = {"Host": "127.0.0.1", "Authorization": f"Bearer {key}", "Content-Length": str(len(sent))}
    given |= {"Content-Type": "application/json"} if body is not None else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return Wanted(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + sent, status)


class Connection:
    """One connection, made anew when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port, self._socket, self._read = port, None, b""

    def ask(self, wanted: Wanted) -> tuple[bytes, bytes]:
        """The answer's head and body. Raises AssertionError for another status than wanted."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(wanted.bytes)
        head = self._until_blank_line()
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].split(None, 1)[0]) if b"content-length:" in lower else 0
        while len(self._read) < length:
            self._receive()
        body, self._read = self._read[:length], self._read[length:]
        if b"connection: close" in lower:
            self.close()
        assert int(head.split(None, 2)[1]) == wanted.status, (head, body[:500])
        return head, body

    def _until_blank_line(self) -> bytes:
        while b"\r\n\r\n" not in self._read:
            self._receive()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    def _receive(self) -> None:
        part = self._socket.recv(65_536)
        if not part:
            raise ConnectionError("the server closed the connection before its answer was whole")
        self._read += part

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._read = None, b""


@dataclass(slots=True)
class AlreadyExists:
    """What some rounds of requests took, in seconds."""

    wall: float = 0.0
    client: float = 0.0  # of the processor, by the clients themselves
    each: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.each) / self.wall

    def percentile(self, share: float) -> float:
        return sorted(self.each)[min(len(self.each) - 1, int(len(self.each) * share))]


Results = list[Sequence[tuple[bool, float]] | BaseException]


def run(port: int, wanted: Sequence[Wanted], taken: AlreadyExists, clients: int = CLIENTS) -> None:
    """Ask for all of these, each client its share, and add to `taken` what it took."""
    shares = [wanted[place::clients] for place in range(clients)]
    run_paced(port, shares, 0.0, math.inf, taken, taken)


def run_paced(
    port: int,
    wanted: Sequence[Sequence[Wanted]],
    every: float,
    seconds: float,
    posts: AlreadyExists,
    others: AlreadyExists,
) -> None:
    """Each client asks for its own for so long: one POST `every` seconds, at a time of its own, or without a pause.

    What is taken is counted from the moment at which it was to be asked, whenever the client came to it.
    """
    started, spent = time.perf_counter(), time.process_time()
    results: Results = []
    turns = (started + every * place / len(wanted) for place in range(len(wanted)))
    threads = [
        threading.Thread(target=_client, args=(port, one, turn, every, seconds, results))
        for one, turn in zip(wanted, turns, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for taken in (posts,) if posts is others else (posts, others):
        taken.wall += time.perf_counter() - started
        taken.client += time.process_time() - spent
    for result in results:
        if isinstance(result, BaseException):
            raise result
        for is_post, took in result:
            (posts if is_post else others).each.append(took)


def _client(port: int, wanted: Sequence[Wanted], turn: float, every: float, seconds: float, results: Results) -> None:
    connection, taken, end = Connection(port), [], turn + seconds
    try:
        for one in wanted:
            is_post = one.bytes.startswith(b"POST")
            if is_post and every:
                time.sleep(max(0.0, turn - time.perf_counter()))
                due, turn = turn, turn + every
            else:
                due = time.perf_counter()
            if due >= end:
                break
            connection.ask(one)
            taken.append((is_post, time.perf_counter() - due))
        results.append(taken)
    except (OSError, AssertionError, ValueError, IndexError) as failure:
        results.append(failure)
    finally:
        connection.close()
