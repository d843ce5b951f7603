"""Pictures of every page, as an owner of a house that is lived in sees it: `python -m tests.browser.pictures FOLDER`.

A new page is a line in tests/browser/places.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django

from tests import environment  # before the settings are read: it says where keys and database are

TALLEST = 1_400  # pixels of a page that are pictured


def main(folder: Path) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "EMAIL_URL": "memorymail://"}  # which goes nowhere
    django.setup()
    from django.core.management import call_command

    from tests.api.serving import serving
    from tests.browser import chromium
    from tests.browser.furnishing import furnish

    call_command("migrate", verbosity=0)
    home = furnish()
    folder.mkdir(parents=True, exist_ok=True)
    with serving() as service, chromium.running() as browser:
        for picture in _taken(browser, service.url, home, folder):
            print(f"{picture.name}  {picture.stat().st_size / 1_000:,.0f} kB")


def _taken(browser, origin, home, folder):  # type: ignore[no-untyped-def]  # what it is given is imported after set-up
    from tests.browser.places import BY_LINK, OF_SERVICE, PLACES
    from tests.browser.window import SIZES, opened

    for places, person in ((PLACES, home.owner), (OF_SERVICE, home.root), (BY_LINK, None)):
        cookies = None
        for size in SIZES:
            with opened(browser, origin, size, "light", cookies) as window:
                if person and cookies is None:
                    window.sign_in(person)
                    cookies = window.page.context.storage_state()
                for place, address in places.items():
                    window.open(address(home))
                    picture = folder / f"{place}-{size}.png"
                    window.pictured(picture, TALLEST)
                    yield picture


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    assert environment.FOLDER.is_dir()
    main(Path(sys.argv[1]))
