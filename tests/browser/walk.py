"""A person's way through the pages, by links and buttons. Every page must be usable and show no content."""

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from memory.models import Person
from tests.browser.window import Window
from tests.privacy.marker import MARKER

MOST_TABS = 120


@dataclass(frozen=True)
class Walk:
    """One person, in one window."""

    window: Window

    @property
    def page(self) -> Page:
        return self.window.page

    def arrive(self) -> None:
        """Check the page."""
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
        """Follow a link among the actions of a list or a row. On a phone, a button opens them."""
        button = self.page.get_by_role("button", name="Actions")
        if button.is_visible():
            button.click()
        self.follow(link)

    def press(self, button: str) -> None:
        self.read(button)
        self.arrive()

    def read(self, button: str) -> None:
        """Press a button that leads to a page with content."""
        found, menu = (
            self.page.get_by_role("button", name=button, exact=True).first,
            self.page.locator(".pal-menu summary"),
        )
        if not found.is_visible() and menu.is_visible():
            menu.click()
        with self.window.leaving():
            found.click()
        self.window.is_usable()

    def sees(self, *texts: str) -> None:
        for text in texts:
            expect(self.page.locator("body").filter(has_text=text)).to_have_count(1)

    def press_key_on(self, target: Locator, key: str = "Enter") -> None:
        """Move to the target with the Tab key, then press a key that leads to another page."""
        for _ in range(MOST_TABS):
            self.page.keyboard.press("Tab")
            if target.evaluate("at => at === document.activeElement"):
                break
        else:
            raise AssertionError(f"the Tab key does not reach {target}")
        with self.window.leaving():
            self.page.keyboard.press(key)
        self.arrive()
