"""Going through the service by what its pages offer. Each page on the way is usable, and says nothing it may not."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from memory.models import Person
from tests.browser.window import Window
from tests.privacy.marker import MARKER

FURTHEST = 120  # steps of the Tab key that anybody would take


@dataclass(frozen=True)
class Walk:
    """One person's way, in a window of their own."""

    window: Window

    @property
    def page(self) -> Page:
        return self.window.page

    def arrive(self) -> None:
        """Look at the page that one came to."""
        self.window.is_usable()
        assert MARKER not in self.page.content()

    def open(self, address: str) -> None:
        assert self.window.open(address) == 200
        self.arrive()

    def enter(self, person: Person) -> None:
        self.window.sign_in(person)
        self.arrive()

    def follow(self, link: str) -> None:
        with self.window.leaving():
            self.page.get_by_role("link", name=link, exact=True).first.click()
        self.arrive()

    def choose(self, link: str) -> None:
        """Of what can be done with a list or a row: on a phone it is folded away."""
        folded = self.page.get_by_role("button", name="Actions")
        if folded.is_visible():
            folded.click()
        self.follow(link)

    def press(self, button: str) -> None:
        self.read(button)
        self.arrive()

    def read(self, button: str) -> None:
        """Press what leads to a page that shows content, by somebody's consent."""
        with self.window.leaving():
            self.page.get_by_role("button", name=button, exact=True).first.click()
        self.window.is_usable()

    def sees(self, *texts: str) -> None:
        for text in texts:
            expect(self.page.locator("body").filter(has_text=text)).to_have_count(1)

    def tab_to(self, wanted: Locator) -> None:
        """By the Tab key alone, as far as it takes."""
        for _ in range(FURTHEST):
            self.page.keyboard.press("Tab")
            if wanted.evaluate("at => at === document.activeElement"):
                return
        raise AssertionError(f"no Tab leads to {wanted}")

    def strike(self, wanted: Locator, key: str = "Enter") -> None:
        """Go there by the Tab key, and strike a key that leads to another page."""
        self.tab_to(wanted)
        with self.window.leaving():
            self.page.keyboard.press(key)
        self.arrive()
