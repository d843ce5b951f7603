"""Take pictures of every page with the example data: `python -m tests.browser.pictures FOLDER`.

For a new page, add a line to tests/browser/places.py.
"""

import os
import sys
from pathlib import Path

import django

from tests import environment  # before Django reads its settings: it sets where keys and database are

TALLEST = 1_400  # pixels: a picture shows no more of a page


def main(folder: Path) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "EMAIL_URL": "memorymail://"}
    django.setup()
    from django.core.management import call_command

    from tests.api.serving import serving
    from tests.browser import chromium
    from tests.browser.example_data import furnish

    call_command("migrate", verbosity=0)
    home = furnish()
    folder.mkdir(parents=True, exist_ok=True)
    with serving() as service, chromium.running() as browser:
        for picture in _pictures(browser, service.url, home, folder):
            print(f"{picture.name}  {picture.stat().st_size / 1_000:,.0f} kB")


def _pictures(browser, origin, home, folder):  # type: ignore[no-untyped-def]  # the types are imported after setup
    from tests.browser.places import BY_LINK, FOR_OWNERS, FOR_SUPERUSERS
    from tests.browser.window import SIZES, opened

    for pages, person in ((FOR_OWNERS, home.owner), (FOR_SUPERUSERS, home.root), (BY_LINK, None)):
        cookies = None
        for size in SIZES:
            with opened(browser, origin, size, "light", cookies) as window:
                if person and cookies is None:
                    window.sign_in(person)
                    cookies = window.page.context.storage_state()
                for name, address in pages.items():
                    window.open(address(home))
                    picture = folder / f"{name}-{size}.png"
                    window.take_picture(picture, TALLEST)
                    yield picture


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    assert environment.FOLDER.is_dir()
    main(Path(sys.argv[1]))
