"""VAR_DIR is full: no process dies, and everything that needs no disk continues."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from config.database import FULL
from tests.commands.calling import Installation, failed
from tests.commands.serving import TOKEN, start_serving, until_ready

pytestmark = pytest.mark.slow

MEMORY = {"content": "The harbour office opens at nine."}
BYTES = 24 * 2**20
# without `-W error`: Django does not close a connection whose first statement failed, and Python 3.13 warns
MANAGE = (sys.executable, "manage.py")
CREATE = (*MANAGE, "create_agent", "acme/eve", "--model", "builtin/dedupe")


@pytest.fixture
def small_disk(_made: Path, tmp_path: Path) -> Iterator[Path]:
    """An installation on a small disk of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check="CI" in os.environ).returncode:
        pytest.skip("only root can mount a disk; in CI this is an error")
    try:
        yield shutil.copytree(_made, folder / "service")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Write until the disk is full."""
    file = folder / "filler"
    with suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4_096))
    return file


def test_a_full_disk_kills_no_process_and_reading_continues(small_disk: Path) -> None:
    serving = start_serving(Installation(small_disk), METRICS_TOKEN=TOKEN)
    try:
        key = until_ready(serving).create_agent()
        processes = sorted(serving.descendants())
        filler = fill(small_disk)
        for _ in range(3):
            for method, path, body in (
                ("GET", "healthz", None),
                ("GET", "metrics", None),
                ("GET", "admin/login/", None),
                ("GET", "api/v1/memories", None),
                ("GET", "api/v1/memories/1", None),
                ("POST", "api/v1/memories/search", {"q": "harbour"}),
                ("GET", "api/v1/context", None),
                ("GET", "api/v1/audit", None),
            ):
                status, text = serving.request(method, path, body, TOKEN if path == "metrics" else key)
                assert status == 200, (path, status, text)
        large = {"memories": [{"content": f"{number} {'words ' * 1_000}"} for number in range(160)]}
        assert serving.request("POST", "api/v1/memories/batch", large, key)[0] == 503
        status, text = serving.request("GET", "readyz")
        assert (status, json.loads(text)["disk"][:47]) == (200, "cannot be written (No space left on device): ch")
        ran = serving.installation.execute(*CREATE)
        assert (ran.code, ran.out.strip(), FULL in ran.err) == (2, "", True)
        with httpx.Client(base_url=f"http://{serving.address}") as client:
            client.get("/admin/login/")
            form = {"csrfmiddlewaretoken": client.cookies["palimpsest_csrf"], "username": "pat@acme.test"}
            page = client.post("/admin/login/", data=form | {"password": "wrong", "code": "000000"})
        assert (page.status_code, "The service cannot write now" in page.text) == (503, True)
        assert sorted(serving.descendants()) == processes
        filler.unlink()
        assert json.loads(serving.request("GET", "readyz")[1])["disk"] == "ok"
        assert serving.request("POST", "api/v1/memories", MEMORY, key)[0] == 201
        assert "Traceback" not in serving.log.read_text()
        assert serving.installation.manage("verify_audit", "--all").code == 0
    finally:
        serving.kill()


def test_a_service_that_starts_on_a_full_disk_works_when_there_is_room(small_disk: Path) -> None:
    filler = fill(small_disk)
    elsewhere = Installation(small_disk.parent.parent)  # its log
    serving = start_serving(elsewhere, VAR_DIR=str(small_disk), KEYS_DIR=str(small_disk / "keys"))
    try:
        for _ in range(200):
            if f"The worker waits: {FULL}" in serving.log.read_text() and "readyz" in serving.log.read_text():
                break
            time.sleep(0.1)
        assert serving.request("GET", "healthz")[0] == 200
        assert serving.request("GET", "api/v1/agent")[0] == 503  # its start checks could not run
        assert FULL[:-1] in json.loads(serving.request("GET", "readyz")[1])["database"]
        filler.unlink()
        serving.refine(until_ready(serving).create_agent(), "completed")
        log = serving.log.read_text()
        assert ("worker ended" in log, "Traceback" in log) == (False, False)
    finally:
        serving.kill()


def test_on_a_read_only_disk_errors_have_no_traceback(small_disk: Path) -> None:
    service = Installation(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", small_disk.parent], check=True)
    ran = service.execute(sys.executable, "-c", "import config.wsgi")
    assert "disk is read-only" in failed(ran, 3, "Palimpsest does not start")
    for command in (CREATE, (*MANAGE, "worker")):
        failed(service.execute(*command), 2, "disk is read-only")
