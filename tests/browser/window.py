"""A browser window on the service, with a size and colours. It records errors and checks that pages are usable."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from memory.models import Person
from tests.admin.conftest import PASSWORD, code

SIZES: dict[str, tuple[int, int]] = {"desktop": (1280, 900), "phone": (390, 844)}
LOOKS = [(size, colours) for size in SIZES for colours in ("light", "dark")]
USUAL = [("desktop", "light"), ("phone", "dark")]  # each size and each colour scheme once


@dataclass
class Window:
    """A page, and its faults, one in each line. A fault fails the test at the end."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # parts of faults that the test causes on purpose

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._fault(f"script: {error.message}"))
        self.page.on("request", self._request)
        self.page.on("requestfailed", self._failed_request)

    def _fault(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.faults.append(f"{urlsplit(self.page.url).path}: {text}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):  # violations of the Content-Security-Policy are among these
            self._fault(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and f"{url.scheme}://{url.netloc}" != self.origin:
            self._fault(f"request to another host: {request.url}")

    def _failed_request(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the window left the page
            self._fault(f"no response: {request.url} {request.failure}")

    def open(self, address: str) -> int:
        """Open the address and wait until the page is drawn. Return the response's status."""
        response = self.page.goto(address)
        self.settle()
        assert response is not None
        return response.status

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """The block must lead to another page. Wait until that page is drawn."""
        with self.page.expect_navigation():
            yield
        self.settle()

    def settle(self) -> None:
        """Wait for scripts and fonts, which move what is on the page."""
        self.page.wait_for_load_state("load")
        self.page.wait_for_function("!document.querySelector('html[x-cloak]')")
        self.page.evaluate("document.fonts.ready.then(() => true)")

    def sign_in(self, person: Person, digits: str = "", password: str = PASSWORD) -> None:
        """Fill in the form and send it. `digits` replace the right code."""
        self.open("/admin/login/")
        for label, text in (("Email", person.email), ("Password", password), ("Code", digits or code(person))):
            self.page.get_by_label(label).fill(text)
        with self.leaving():
            self.page.get_by_role("button", name="Sign in").click()

    def take_picture(self, file: Path, tallest: int) -> None:
        """The page down to `tallest` pixels. The window grows first, so that parts which scroll are in the picture."""
        size = self.page.viewport_size
        assert size is not None
        whole: int = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({**size, "height": max(size["height"], min(whole, tallest))})
        self.settle()
        self.page.screenshot(path=file)
        self.page.set_viewport_size(size)

    def is_usable(self) -> None:
        """Check the page's width and its accessibility."""
        wrong = self.harm() + self.overflow()
        assert not wrong, "\n".join(wrong)

    def overflow(self) -> list[str]:
        """Elements that are wider than the window and make the page scroll sideways. A table may scroll in itself."""
        wider: list[str] = self.page.evaluate(_WIDER, self.page.viewport_size["width"])  # type: ignore[index]
        return wider

    def harm(self) -> list[str]:
        """Serious and critical violations that axe finds, with selectors."""
        return [
            f"{rule['id']} ({rule['impact']}): {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for rule in self._axe()["violations"]
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]

    def _axe(self) -> dict[str, Any]:
        """Run axe through the debugger, because the pages' Content-Security-Policy allows no other script."""
        session = self.page.context.new_cdp_session(self.page)
        try:
            session.send("Runtime.evaluate", {"expression": AXE_SCRIPT})
            expression = {"expression": _RUN_AXE, "awaitPromise": True, "returnByValue": True}
            response = session.send("Runtime.evaluate", expression)
            assert "exceptionDetails" not in response, response
            found: dict[str, Any] = response["result"]["value"]
            return found
        finally:
            session.detach()


_RUN_AXE = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => ({violations}))"
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
def opened(
    browser: Browser, origin: str, size: str, colours: str, state: Any = None, zone: str = "UTC"
) -> Iterator[Window]:
    """A new window. `state` holds the cookies of another window. `zone` is the reader's time zone."""
    width, height = SIZES[size]
    phone = {"is_mobile": size == "phone", "has_touch": size == "phone"}
    look: Any = {"viewport": {"width": width, "height": height}, "color_scheme": colours, "reduced_motion": "reduce"}
    here = {"base_url": origin, "locale": "en-GB", "timezone_id": zone}
    context = browser.new_context(storage_state=state, **here, **phone, **look)
    context.set_default_timeout(30_000)
    try:
        yield Window(context.new_page(), origin)
    finally:
        context.close()
