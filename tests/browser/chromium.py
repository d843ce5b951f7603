"""The machine's own Chromium, without its background requests."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
OPTIONS += "--disable-component-update --disable-sync"


class NoChromium(Exception):
    """An error, not a skip: tests that do not run prove nothing."""


def executable() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoChromium(
            f"These tests need Chromium, and none of {', '.join(NAMES)} is on the PATH. On Debian and Ubuntu: "
            "apt-get install chromium. For a Chromium in another place, set the variable CHROMIUM to its path."
        )
    return found


@contextmanager
def running() -> Iterator[Browser]:
    """A Chromium, until the block ends.

    Playwright runs an event loop in this thread, and Django refuses database access in such a thread. Its guard is for
    coroutines. There are none here, so the guard is off while the browser runs. The loop has its own connections to the
    database. They close before it ends; otherwise PostgreSQL could not drop the database.
    """
    path = executable()
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=OPTIONS.split())
            try:
                yield browser
            finally:
                connections.close_all()
                browser.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
