"""A window on the service: its size and colours, who is signed in, and whatever goes wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request

from memory.models import Person
from tests.admin.conftest import PASSWORD, code

SIZES: dict[str, tuple[int, int]] = {"desktop": (1280, 900), "phone": (390, 844)}
COLOURS = ("light", "dark")
LOOKS = [(size, colours) for size in SIZES for colours in COLOURS]
USUAL = [("desktop", "light"), ("phone", "dark")]  # each size and each colour once
HARMFUL = ("serious", "critical")


@dataclass
class Window:
    """A page, and what it did that it should not have: each is a line, and fails the test in the end."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)
    meant: list[str] = field(default_factory=list)  # parts of faults that the test is about

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", self._failed)
        self.page.on("request", self._asked)
        self.page.on("requestfailed", self._unanswered)

    def _fault(self, told: str) -> None:
        if not any(part in told for part in self.meant):
            self.faults.append(f"{urlsplit(self.page.url).path}: {told}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):  # what a Content-Security-Policy stopped is among these
            self._fault(f"console: {message.text}")

    def _failed(self, error: Error) -> None:
        self._fault(f"script: {error.message}")

    def _asked(self, request: Request) -> None:
        at = urlsplit(request.url)
        if at.scheme not in ("data", "blob") and f"{at.scheme}://{at.netloc}" != self.origin:
            self._fault(f"asked another host: {request.url}")

    def _unanswered(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page was left meanwhile
            self._fault(f"no answer: {request.url} {request.failure}")

    def open(self, address: str) -> int:
        """Go there and wait until it is drawn. The answer's status."""
        answer = self.page.goto(address)
        self.settle()
        assert answer is not None
        return answer.status

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """What the block does leads to another page; it ends when that one is drawn."""
        with self.page.expect_navigation():
            yield
        self.settle()

    def settle(self) -> None:
        """Wait until scripts and fonts have come, without which nothing is where it will be."""
        self.page.wait_for_load_state("load")
        self.page.wait_for_function("!document.querySelector('html[x-cloak]')")
        self.page.evaluate("document.fonts.ready.then(() => true)")

    def sign_in(self, person: Person, digits: str = "") -> None:
        """By the form, as the person would."""
        self.open("/admin/login/")
        self.page.get_by_label("Email").fill(person.email)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_label("Code").fill(digits or code(person))
        with self.leaving():
            self.page.get_by_role("button", name="Sign in").click()

    def pictured(self, file: Path, tallest: int) -> None:
        """The whole page, down to so many pixels. The window grows for it: what scrolls in itself is pictured, too."""
        size = self.page.viewport_size
        assert size is not None
        whole: int = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({**size, "height": max(size["height"], min(whole, tallest))})
        self.settle()
        self.page.screenshot(path=file)
        self.page.set_viewport_size(size)

    def is_usable(self) -> None:
        """Fails the test, with all that is wrong, unless everybody can use the page at this size."""
        wrong = self.harm() + self.overflow()
        assert not wrong, "\n".join(wrong)

    def overflow(self) -> list[str]:
        """What is wider than the window, so that the whole page moves sideways. Tables that scroll in place may be."""
        wider: list[str] = self.page.evaluate(_WIDER, self.page.viewport_size["width"])  # type: ignore[index]
        return wider

    def harm(self) -> list[str]:
        """What axe finds that keeps somebody out: serious and critical, with selectors."""
        found = self._axe()["violations"]
        return [
            f"{rule['id']} ({rule['impact']}): {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for rule in found
            if rule["impact"] in HARMFUL
            for node in rule["nodes"]
        ]

    def _axe(self) -> dict[str, Any]:
        """By the debugger's own door: the pages' policies let no script in, and this one neither."""
        session = self.page.context.new_cdp_session(self.page)
        try:
            session.send("Runtime.evaluate", {"expression": AXE_SCRIPT})
            asked = {"expression": _ASK_AXE, "awaitPromise": True, "returnByValue": True}
            answer = session.send("Runtime.evaluate", asked)
            assert "exceptionDetails" not in answer, answer
            told: dict[str, Any] = answer["result"]["value"]
            return told
        finally:
            session.detach()


_ASK_AXE = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => ({violations}))"
_WIDER = """width => {
    const page = document.scrollingElement;
    if (page.scrollWidth <= width) return [];
    const clipped = at => at && at !== document.body &&
        (getComputedStyle(at).overflowX !== 'visible' || clipped(at.parentElement));
    return [`the page is ${page.scrollWidth} wide of ${width}`].concat([...document.body.querySelectorAll('*')]
        .filter(at => at.getBoundingClientRect().right > width + 1 && !clipped(at.parentElement))
        .map(at => `${at.tagName.toLowerCase()}#${at.id}.${[...at.classList].join('.')}`).slice(0, 8));
}"""


@contextmanager
def opened(browser: Browser, origin: str, size: str, colours: str, state: Any = None) -> Iterator[Window]:
    """A new window without a past, or with the cookies of another (`state`)."""
    width, height = SIZES[size]
    is_phone = size == "phone"
    context = browser.new_context(
        base_url=origin,
        viewport={"width": width, "height": height},
        is_mobile=is_phone,
        has_touch=is_phone,
        color_scheme=colours,  # type: ignore[arg-type]
        reduced_motion="reduce",
        locale="en-GB",
        storage_state=state,
    )
    context.set_default_timeout(30_000)
    try:
        yield Window(context.new_page(), origin)
    finally:
        context.close()
