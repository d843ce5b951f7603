"""`manage.py serve` with real processes: requests, refinement, dead processes, stops."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from config.management.commands import serve as command
from tests.commands.calling import Installation, failed
from tests.commands.serving import TOKEN, Serve, Served, children_of, cpu_seconds, have_ended, until_ready
from tests.model_server import YES, Action, Call, ModelServer, Slow, Turn, is_check
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.slow


def assert_refines(serving: Served, name: str = "acme/ada") -> None:
    """The worker refines a new agent without a model server."""
    key = serving.create_agent(name)
    session = serving.refine(key, "completed")
    assert (session["driver"], session["trigger"], session["merged"]) == ("server", "agent", 2)
    context = serving.request("GET", "api/v1/context", key=key)[1]
    assert ("Refinement completed." in context, context.count("on the quay")) == (True, 1)
    assert serving.installation.manage("verify_audit", "--all", **serving.environment).code == 0
    assert MARKER not in serving.log.read_text()


@pytest.mark.postgresql
def test_it_refines_on_postgresql_and_redis(serve: Serve, service: Installation, scaled: dict[str, str]) -> None:
    assert service.manage("migrate", "--verbosity", "0", **scaled).code == 0
    assert_refines(serve(**scaled))


def test_it_refines_is_cheap_when_idle_and_one_ctrl_c_ends_all_processes(serve: Serve) -> None:
    """A session that ends soon is not interrupted. A session that outlasts the stop is closed."""
    soon = Slow(3, then=Call("complete_refinement", {"summary": "Nothing to do."}))

    def answer(turn: Turn) -> Action:
        if is_check(turn):
            return YES
        return soon if turn.model == "scripted" else Slow(60)

    with ModelServer(answer) as server:
        serving = serve(OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="any", STOP_SECONDS="8", TENANT_SESSIONS="2")
        assert_refines(serving)
        processes = serving.descendants()
        assert len(processes) == 1 + 2 + 1 + 1 + 4, "web and its two, the worker, its guard and the guard's four"
        time.sleep(1)
        used, start = cpu_seconds(processes), time.monotonic()
        time.sleep(3)
        assert (cpu_seconds(processes) - used) / (time.monotonic() - start) < 0.06
        keys = {name: serving.create_agent(f"acme/{name}", f"openai/{name}") for name in ("slow", "scripted")}
        for key in keys.values():
            serving.refine(key, "open")
        assert serving.stop() == 0
    assert have_ended(processes)
    log = serving.log.read_text()
    assert f"Palimpsest answers at http://{serving.address}/readyz" in log
    assert "manage.py create_agent TENANT/AGENT" in log
    ends = re.findall(r'"outcome": "(\w+)", "reason": "(\w*)", "event": "refinement session closed"', log)
    assert sorted(ends) == [("completed", ""), ("completed", ""), ("incomplete", "worker_stopped")]
    assert "stopping: running work has 8 seconds to end" in log
    assert "Traceback" not in log
    exported = serving.installation.manage("export_memories", "acme/scripted", PALIMPSEST_AGENT_KEY=keys["scripted"])
    assert "Refinement completed." in exported.out


def test_a_dead_worker_is_replaced_and_the_service_ends_with_the_web_process(serve: Serve) -> None:
    """Idle processes of the worker are killed too, each while it holds the lock of a queue that others wait for."""
    serving = serve()
    worker = serving.children()["worker"]
    processes = children_of(worker) + children_of(children_of(worker)[0])
    os.kill(worker, signal.SIGKILL)
    assert have_ended([worker, *processes], 20)
    assert_refines(serving)
    assert "the worker ended (killed by signal 9): starting another" in serving.log.read_text()
    for count, victim in enumerate(("works", "files"), 1):
        [guard] = children_of(serving.children()["worker"])
        for _ in range(100):
            if len(children_of(guard)) == 4:
                break
            time.sleep(0.1)
        *workers, files, _ = sorted(children_of(guard))
        time.sleep(1)  # until all of them wait
        for pid in workers if victim == "works" else [files]:
            os.kill(pid, signal.SIGKILL)
        assert have_ended([guard], 20)
        assert_refines(serving, f"acme/{victim}")
        log = serving.log.read_text()
        assert log.count("a process of the worker died: the worker ends") == count
        assert log.count("the worker ended (exit code 1): starting another") == count
    killed = serving.children()["web"]
    workers, start = children_of(killed), time.monotonic()
    os.kill(killed, signal.SIGKILL)
    while serving.children().get("web") in (None, killed):
        assert time.monotonic() - start < 5 * 2, "the new process starts within two seconds"
        time.sleep(0.05)
    assert have_ended(workers)
    until_ready(serving)
    assert "the web process ended (killed by signal 9): starting another" in serving.log.read_text()
    processes = serving.descendants()
    os.kill(serving.children()["web"], signal.SIGTERM)
    assert serving.process.wait(40) == 1
    assert have_ended(processes)
    assert "the web process ended (exit code 0): stopping" in serving.log.read_text()


def test_a_worker_that_dies_too_often_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    deaths: deque[float] = deque(maxlen=2)
    assert [command.may_replace(deaths) for _ in range(4)] == [True, True, False, False]
    monkeypatch.setattr(command, "WITHIN", 0)
    assert [command.may_replace(deaths) for _ in range(4)] == [True] * 4


def test_two_web_processes_report_one_sum_of_metrics(serve: Serve) -> None:
    serving = serve()
    assert len(children_of(serving.children()["web"])) == 2
    requests = 200
    with ThreadPoolExecutor(8) as pool:
        responses = pool.map(lambda _: serving.request("GET", "healthz"), range(requests))
        assert {status for status, _ in responses} == {200}
    metric = r'palimpsest_requests_total{method="GET",route="healthz",status="200"} (\S+)'
    reports = [serving.request("GET", "metrics", key=TOKEN)[1] for _ in range(6)]
    assert [re.findall(metric, report) for report in reports] == [[f"{requests:.1f}"]] * 6
    victim = children_of(serving.children()["web"])[0]
    os.kill(victim, signal.SIGKILL)
    assert have_ended([victim])
    reports = [serving.request("GET", "metrics", key=TOKEN)[1] for _ in range(6)]
    assert [re.findall(metric, report) for report in reports] == [[f"{requests:.1f}"]] * 6, "its counts stay"
    ran = serving.installation.manage("serve", "--bind", serving.address)
    error = f"error: cannot listen on {serving.address} (Address already in use). Choose another address"
    assert (ran.code, ran.err.startswith(error), ran.err.count("\n")) == (1, True, 1)
    assert serving.request("GET", "healthz")[0] == 200
    assert re.findall(metric, serving.request("GET", "metrics", key=TOKEN)[1]) == [f"{requests + 1:.1f}"]
    assert serving.stop(signal.SIGHUP) == 0, "SIGHUP: its terminal was closed"
    assert 'route="healthz"' not in serve().request("GET", "metrics", key=TOKEN)[1]


def test_pages_are_self_contained_and_the_log_has_nothing_of_a_request(serve: Serve) -> None:
    serving = serve()
    site = f"http://{serving.address}"
    with urllib.request.urlopen(urllib.request.Request(f"{site}/healthz", method="HEAD"), timeout=20) as response:
        assert response.headers["Content-Length"] == str(len('{"status": "ok"}'))
    page = urllib.request.urlopen(f"{site}/api/v1/docs/", timeout=20).read().decode()
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(links) >= 4, page
    for link in links:
        assert link.startswith(("/static/", "/api/v1/docs/?script")), link
        with urllib.request.urlopen(site + link, timeout=20) as response:
            assert response.read(), link
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{site}/static/../config/settings.py", timeout=20)
    host, port = serving.address.split(":")
    for invalid in (b"ZEBRA secret line\r\n\r\n", b"GET / HTTP/1.1\r\nZEBRA bad header\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(invalid)
            assert b"400" in client.recv(1000)
    log = serving.log.read_text()
    assert log.count("Invalid request from ip=127.0.0.1") == 2
    assert ("ZEBRA" in log, "body" in log) == (False, False)


def test_an_invalid_address_is_refused(service: Installation) -> None:
    for address in ("127.0.0.1:99999", "127.0.0.1:port", "256.256.256.256:80"):
        ran = service.manage("serve", "--bind", address)
        assert failed(ran, 1).startswith(f"error: cannot listen on {address} (")
        assert "Palimpsest answers" not in ran.err


def test_ctrl_c_while_a_dead_worker_is_replaced_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_wait", interrupt)
    dead = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    dead.wait()
    with pytest.raises(KeyboardInterrupt):
        command.Command()._watch({command.WORKER: dead}, "")


def test_a_wrong_configuration_stops_the_service_with_code_2() -> None:
    wrong = subprocess.Popen([sys.executable, "-c", "exit(2)"], start_new_session=True)
    wrong.wait()
    assert command.Command()._watch({command.WORKER: wrong}, "") == 2
