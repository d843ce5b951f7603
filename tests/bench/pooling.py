"""The service behind PgBouncer in transaction mode, tried: python -m tests.bench.pooling [--connections 4] [--prepared]

Web processes and a worker reach a PostgreSQL database of their own through a pooler with fewer connections than there
are processes; clients write and search, the worker refines, a trail is verified. Told is how many of each went well and
what went wrong otherwise. Needs `pgbouncer` on the PATH (or PGBOUNCER, the program's path). A PgBouncer from 1.21 on
keeps prepared statements: --prepared leaves them on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.bench import places

AGENTS, CLIENTS, SECONDS = 40, 8, 15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=4, help="of the pooler to PostgreSQL")
    parser.add_argument("--prepared", action="store_true")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        tried()
        return 0
    with places.folder() as folder, places.database("postgresql", folder) as url:
        direct = places.environment(folder, url)
        manage = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(manage, env=direct, cwd=places.ROOT, check=True)
        with pooler(folder, url, options.connections) as pooled:
            through = direct | {"DATABASE_URL": pooled, "PREPARED_STATEMENTS": str(options.prepared).lower()}
            command = [sys.executable, "-m", "tests.bench.pooling", "--inner"]
            return subprocess.run(command, env=through, cwd=places.ROOT, check=False).returncode


@contextmanager
def pooler(at: Path, url: str, connections: int) -> Iterator[str]:
    """A PgBouncer in transaction mode; the URL through it."""
    program = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer")
    if program is None:
        sys.exit("There is no pgbouncer on the PATH.")
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = parts.username or "nobody"
    settings = f"""
[databases]
{parts.path[1:]} = host={parts.hostname} port={parts.port or 5432} user={parts.username or "root"}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""
    folder = Path(tempfile.mkdtemp(prefix="pooler-"))  # where another user may read it
    (folder / "pgbouncer.ini").write_text(settings)
    command = [program, str(folder / "pgbouncer.ini")]
    if os.getuid() == 0:  # which it refuses to run as
        folder.chmod(0o755)
        command = [program, "-u", "nobody", str(folder / "pgbouncer.ini")]
    process = subprocess.Popen(command, stderr=(folder / "log").open("w"))
    try:
        time.sleep(1)
        yield urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def tried() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from django.utils import timezone

    from memory.models import Agent
    from memory.time_machine import replay
    from refinement.models import RefinementSession
    from tests.bench import fleet
    from tests.bench.serving import served

    keys = fleet.agents_to_refine(AGENTS)
    since = timezone.now()
    with (
        fleet.model() as (_, address),
        fleet.workers(4, address) as worker,
        served("config.wsgi", API_RATE="999999999") as port,
    ):
        fleet.make_due(AGENTS)
        answers = asked(port, keys)
        fleet.until(lambda: fleet.ended_since(since) >= AGENTS)
        fleet.rest()
    print("answers over HTTP:", dict(sorted(answers.items())))
    ended = Counter(RefinementSession.objects.values_list("outcome", "reason"))
    print("sessions:", {" ".join(filter(None, how)): count for how, count in ended.items()})
    problems = Counter()
    for agent in Agent.objects.all():
        try:
            problems["sound" if not list(replay.problems_of(agent.pk)) else "NOT SOUND"] += 1
        except Exception as failure:  # noqa: BLE001  whatever breaks is the finding
            problems[f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}"] += 1
    print("trails verified:", dict(problems))
    for line in worker.said:
        if '"level": "error"' in line:
            print("the worker says:", line[:300])
            break


def asked(port: int, keys: list[str]) -> Counter[str]:
    """Some seconds of writes, searches, contexts and exports by several clients."""
    from tests.bench import load

    answers: Counter[str] = Counter()
    end = time.monotonic() + SECONDS

    def client(place: int) -> None:
        asking = load.Connection(port)
        number = place
        while time.monotonic() < end:
            key, number = keys[number % len(keys)], number + 1
            wanted = {
                "write": ("POST", "memories", {"content": f"Number {number} of {place}."}, 201),
                "search": ("POST", "memories/search", {"q": "boat paint", "limit": 10}, 200),
                "context": ("GET", "context", None, 200),
            }
            for what, (method, path, body, status) in wanted.items():
                try:
                    asking.ask(load.request(method, f"/api/v1/{path}", key, body, status))
                    answers[f"{what} well"] += 1
                except AssertionError as failure:
                    answers[f"{what}: {failure.args[0][0].splitlines()[0].decode()}"] += 1
                    asking.close()
                except OSError as failure:
                    answers[f"{what}: {failure}"] += 1
                    asking.close()

    threads = [threading.Thread(target=client, args=(place,)) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


if __name__ == "__main__":
    sys.exit(main())
