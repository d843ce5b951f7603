"""Counts the requests of one sender that this process works on. So one sender cannot occupy all threads."""

from collections import Counter
from threading import Lock

_running: Counter[object] = Counter()
_lock = Lock()


def begin(sender: object, most: int) -> bool:
    """Count a request that begins. Return False, and count nothing, if `most` requests of the sender are running.
    Otherwise, the caller must call `end` when the request ends."""
    with _lock:
        if _running[sender] >= most:
            return False
        _running[sender] += 1
        return True


def end(sender: object) -> None:
    """Count the end of a request for which `begin` returned True."""
    with _lock:
        _running[sender] -= 1
        if not _running[sender]:
            del _running[sender]
