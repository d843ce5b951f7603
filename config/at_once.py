"""Counts the requests of each sender that this process works on. So one sender cannot occupy all threads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Lock

_running: Counter[object] = Counter()
_lock = Lock()


def begin(limits: Mapping[object, int]) -> bool:
    """Count a request of these senders that begins. Return False, and count nothing, if one of them already has as many
    requests as its limit. Otherwise, the caller must call `end` when the request ends."""
    with _lock:
        if any(_running[sender] >= most for sender, most in limits.items()):
            return False
        _running.update(limits.keys())
        return True


def end(senders: Iterable[object]) -> None:
    """Count the end of a request for which `begin` returned True."""
    with _lock:
        for sender in senders:
            _running[sender] -= 1
            if not _running[sender]:
                del _running[sender]
