"""Signing in and out in a browser, also by keyboard only."""

import pytest
from playwright.sync_api import expect

from memory.admin.plain_pages.accounts import SIGN_IN_FAILED
from memory.models import Person
from tests.admin.conftest import PASSWORD, code
from tests.browser.conftest import NewWindow
from tests.browser.window import USUAL, Window


def test_signing_in_by_keyboard_and_out(window: Window, pat: Person) -> None:
    window.open("/admin/")
    keys = window.page.keyboard
    expect(window.page.get_by_label("Email")).to_be_focused()
    for text in (pat.email, PASSWORD):
        keys.type(text)
        keys.press("Tab")
    expect(window.page.get_by_label("Code")).to_be_focused()
    keys.type(code(pat))
    keys.press("Enter")
    expect(window.page).to_have_url(f"{window.origin}/admin/")
    expect(window.page).to_have_title("Overview | Palimpsest")
    window.page.get_by_text(pat.email).first.click()
    with window.leaving():
        window.page.get_by_role("button", name="Log out").click()
    window.is_usable()
    window.open("/admin/")
    expect(window.page).to_have_url(f"{window.origin}/admin/login/?next=/admin/")


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_the_form_and_its_errors_are_usable(size: str, colours: str, new_window: NewWindow, pat: Person) -> None:
    window = new_window(size, colours)
    window.open("/admin/login/")
    window.is_usable()
    window.sign_in(pat, "000000")
    expect(window.page.get_by_role("alert")).to_have_text(SIGN_IN_FAILED)
    expect(window.page.get_by_label("Password")).to_have_value("")
    window.is_usable()
    window.expected.append("429")
    for _ in range(6):
        window.sign_in(pat, "000000", "another passphrase")
        if window.page.get_by_role("alert").inner_text() != SIGN_IN_FAILED:
            break
    expect(window.page.get_by_role("heading")).to_have_text("Too many failed attempts")
    expect(window.page.get_by_role("alert")).to_contain_text("15 minutes")
    assert pat.email not in window.page.content()
    window.is_usable()
    window.page.get_by_role("link", name="Back to sign-in").click()
    expect(window.page.get_by_label("Email")).to_be_visible()
