"""The browser that the pages are opened in: the machine's own Chromium, with nothing of its own to say to anybody."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    f"These tests need a Chromium, and none of {', '.join(NAMES)} is on the PATH. On Debian and Ubuntu: "
    "apt-get install chromium. One that lies elsewhere is named in the variable CHROMIUM."
)
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class NoChromium(Exception):
    """Told, and never skipped over: tests that did not run have shown nothing."""


def executable() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoChromium(MISSING)
    return found


@contextmanager
def running() -> Iterator[Browser]:
    """A Chromium, until the block ends.

    Playwright keeps an event loop in the thread that it is used in, and Django refuses the database to a thread with
    one: its guard is for coroutines, of which there are none here. So the guard is taken away as long as the browser
    runs. The other way, a thread of Playwright's own, would have each click of each test sent there and back.
    What the loop does bring about is a connection to the database of its own, which is closed before the loop ends:
    nothing would reach it afterwards, and PostgreSQL drops no database that somebody holds.
    """
    path = executable()
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
            try:
                yield browser
            finally:
                connections.close_all()
                browser.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
