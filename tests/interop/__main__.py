"""Check MCP, the memory stores and search with others' programs: official clients, test suites, and a real model.

    python -m tests.interop [clients] [suite] [sdk] [meaning]

Needs Node, and the package indexes of Python and Node. The versions are pinned.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.commands.calling import ROOT, Installation
from tests.servers import free_port

HERE = Path(__file__).parent
PYTHON_CLIENT, NODE_CLIENT = "mcp==2.3.0", "@modelcontextprotocol/client@2.4.0"
SUITE = "node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NPM_INSTALL = "npm", "install", "--no-fund", "--no-audit", "--prefix"
REQUIRED = {"2026-07-28": 37, "2025-11-25": 30}  # scenarios for a server
SECONDS = 180
# These need no fixture, so the real tools pass them, too.
REAL = {
    "2026-07-28": (
        *("tools-list", "prompts-list", "resources-list", "sep-2164-resource-not-found", "caching"),
        *("dns-rebinding-protection", "server-sse-multiple-streams", "input-required-result-unsupported-methods"),
        "http-header-validation",
    ),
    "2025-11-25": (
        *("server-initialize", "ping", "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection"),
        "server-sse-multiple-streams",
    ),
}

SDK, SDK_PASSED = "anthropic==2.13.0", 410
SDK_NEEDS = ("pytest", "pytest-asyncio", "respx", "inline-snapshot", "dirty-equals", "http-snapshot", "rich", "aiohttp")
PIP_DOWNLOAD = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:")
SDK_TESTS = tuple(
    f"tests/api_resources/beta/{name}" for name in ("memory_stores", "test_memory_stores.py", "test_dreams.py")
)
SDK_REFUSED = {  # test → the rule that it breaks
    r"list_with_all_params": "`limit` is at least 1, and `page` is the `next_page` of an earlier response",
    r"test_memories\.py.*delete_with_all_params": "an expected SHA-256 has 64 hexadecimal digits",
    r"test_dreams\.py.*_create": "a dream reads one memory store and one list of sessions",
}


QUIET = "-q", "--no-header", "-rf", "-W", "ignore::ResourceWarning"  # the tests do not close their clients
SYNC_TESTS, SYNC_PASSED, SYNC_NOT_FOR_ROOT = "tests/lib/tools/memory_sync", 109, 2


def ran(*command: str, folder: Path = ROOT, may_fail: bool = False, **variables: str) -> str:
    """The output of a program that succeeds, unless it may fail."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode and not may_fail:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4_000:]}")
    return done.stdout


@contextmanager
def served(folder: Path, *, settings: str = "config.settings") -> Iterator[tuple[Installation, str]]:
    """A new service in one process: its installation and its address."""
    at, port = Installation(folder), free_port()
    for command in (("create_keys",), ("migrate", "--verbosity", "0")):
        at.manage(*command)
    options = ["--bind", f"127.0.0.1:{port}", "--workers", "1", "--threads", "16", "--no-control-socket"]
    variables = at.environment | {"DJANGO_SETTINGS_MODULE": settings}
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "gunicorn", "config.wsgi", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        until_ready(process, address, folder / "log")
        yield at, address
    finally:
        process.terminate()
        process.wait()
    if " 500" in (folder / "log").read_text():
        raise SystemExit("The service had an internal error.")


def until_ready(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{address}/healthz", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                break
            time.sleep(0.1)
    raise SystemExit(f"The service does not start:\n{log.read_text()[-2_000:]}")


def clients(work: Path) -> None:
    """Each client, in each mode, over HTTP and over standard input and output, with an agent of its own."""
    python, node = work / "python", work / "node"
    ran(sys.executable, "-m", "venv", str(python))
    ran(str(python / "bin" / "python"), "-m", "pip", "install", "--quiet", PYTHON_CLIENT)
    node.mkdir()
    (node / "client.mjs").write_text((HERE / "client.mjs").read_text())
    ran(*NPM_INSTALL, str(node), NODE_CLIENT)
    programs = {
        (str(python / "bin" / "python"), str(HERE / "client.py")): ROOT,
        ("node", str(node / "client.mjs")): node,
    }
    page = (ROOT / "docs" / "connect.md").read_text("utf-8").partition("## A loop of your own")[2]
    (work / "loop.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    with served(work / "clients") as (at, address):
        stdio = (sys.executable, str(ROOT / "manage.py"), "mcp")
        ways = {"HTTP": (f"{address}/mcp",), "stdio": stdio, "stdio to a service": (*stdio, "--url", address)}
        for number, (program, folder, mode, way) in enumerate(
            (program, folder, mode, way)
            for program, folder in programs.items()
            for mode in ("legacy", "auto")
            for way in ways
        ):
            key = at.manage("create_agent", f"interop/a{number}", "--model", "builtin/dedupe").json["key"]
            own = {"VAR_DIR": str(at.folder), "KEYS_DIR": str(at.folder / "keys"), "PALIMPSEST_AGENT_KEY": key}
            said = ran(*program, mode, *ways[way], folder=folder, **own)
            print(f"{said.splitlines()[-1]}, over {way}", flush=True)
        key = at.manage("create_agent", "interop/loop", "--model", "builtin/dedupe").json["key"]
        at.manage("rules", "enable", "interop/loop", "--recording", "--yes", PALIMPSEST_AGENT_KEY=key)
        own = {"PALIMPSEST_AGENT_KEY": key, "PALIMPSEST_URL": address}
        turns = [ran(str(python / "bin" / "python"), str(work / "loop.py"), **own).strip() for _ in range(2)]
        assert turns[0] == "I know 0 lines." != turns[1], turns
        print("The loop of docs/connect.md: done")
        problems = at.manage("verify_audit", "--all")
        assert problems.code == 0, problems


def suite(work: Path) -> None:
    """The official test suite: every required scenario with the fixtures, and those without with the real tools."""
    ran(*NPM_INSTALL, str(work / "conformance"), *SUITE)
    programs = work / "conformance" / "node_modules" / ".bin"
    command = str(programs / "node"), str(programs / "conformance"), "server"
    with served(work / "suite", settings="tests.interop.settings") as (_, address):
        for version, count in REQUIRED.items():
            out = work / f"results-{version}"
            said = ran(*command, "--url", f"{address}/fixtures", "--requirements", version, "-o", str(out))
            summary = said.partition("=== SUMMARY ===")[2].partition("Not scored")
            unscored = set(re.findall(r"[✓✗] (\S+) \(", summary[2]))
            results = {name: mark for mark, name in re.findall(r"([✓✗]) (\S+?): ", summary[0])}
            scored = {name: mark for name, mark in results.items() if name not in unscored}
            failed = sorted(name for name, mark in scored.items() if mark != "✓")
            if failed or len(scored) != count:
                raise SystemExit(
                    f"{version}: {len(scored)} of {count} scenarios ran, failed: {failed}\n{said[-6_000:]}"
                )
            print(f"{version}: {count} of {count} required scenarios passed", flush=True)
            for scenario in REAL[version]:
                ran(*command, "--url", f"{address}/mcp", "--scenario", scenario, "--spec-version", version)
            print(f"{version}: {len(REAL[version])} scenarios without fixtures passed with the real tools", flush=True)


def sdk(work: Path) -> None:
    """The tests of Anthropic's SDK about memory stores. Each test that fails must be listed with the rule that it
    breaks."""
    python = str(work / "python" / "bin" / "python")
    ran(sys.executable, "-m", "venv", str(work / "python"))
    ran(python, "-m", "pip", "install", "--quiet", SDK, *SDK_NEEDS)
    ran(*PIP_DOWNLOAD, SDK, folder=work)
    [archive] = work.glob("anthropic-*.tar.gz")
    ran("tar", "xzf", str(archive), folder=work)
    source = work / archive.name.removesuffix(".tar.gz")
    (source / "literal_ids.py").write_text((HERE / "sdk_plugin.py").read_text("utf-8"))
    (source / SYNC_TESTS / "_fake_anthropic.py").write_text((HERE / "sdk_memory_sync.py").read_text("utf-8"))
    with served(work / "behaviour") as (at, address):
        key = at.manage("create_agent", "interop/stores", "--model", "builtin/dedupe").json["key"]
        print(ran(python, str(HERE / "sdk_behaviour.py"), address, key).splitlines()[-1], flush=True)
        problems = at.manage("verify_audit", "--all")
        assert problems.code == 0, problems
    command = (python, "-m", "pytest", "-o", "addopts=", "-o", "asyncio_mode=auto", *QUIET)
    with served(work / "served", settings="tests.interop.sdk_settings") as (_, address):
        own: Any = {"folder": source, "may_fail": True, "TEST_API_BASE_URL": address}
        said = ran(*command, "-p", "literal_ids", *SDK_TESTS, **own)
        synced = ran(*_without_root(), *command, SYNC_TESTS, **own)
    failed = set(re.findall(r"^FAILED (\S+)", said, re.MULTILINE))
    passed = _passed(said)
    unexpected = [node for node in failed if not any(re.search(pattern, node) for pattern in SDK_REFUSED)]
    if unexpected or passed < SDK_PASSED:
        raise SystemExit(f"{passed} tests passed, unexpected failures: {unexpected}\n{said[-6_000:]}")
    print(f"Anthropic's SDK: {passed} tests passed, {len(failed)} send what the API's rules forbid", flush=True)
    if _passed(synced) < SYNC_PASSED - SYNC_NOT_FOR_ROOT or " failed" in synced:
        raise SystemExit(f"{_passed(synced)} of {SYNC_PASSED} tests of the folder sync passed\n{synced[-6_000:]}")
    print(f"Anthropic's SDK: {_passed(synced)} of {SYNC_PASSED} tests of its folder sync passed", flush=True)


def _without_root() -> tuple[str, ...]:
    """How to run a program as another user, if this user is root: two tests of the sync are skipped for root."""
    command = "unshare", "--user", "--map-user=1000", "--map-group=1000"
    if os.geteuid() or shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        return ()
    return command


def _passed(said: str) -> int:
    return int((re.findall(r"(\d+) passed", said) or ["0"])[-1])


def meaning(_: Path) -> None:
    """A real local embedder."""
    subprocess.run([sys.executable, "-m", "pytest", "-q", str(HERE / "meaning.py")], cwd=ROOT, check=True)


def main(names: Sequence[str]) -> None:
    parts = {"clients": clients, "suite": suite, "sdk": sdk, "meaning": meaning}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or parts:
            parts[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
