"""Where the benches run: databases and keys of their own, gone when they are done."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from config.keyfiles import NAMES, create_key_file

ROOT = Path(__file__).resolve().parents[2]
SECRETS = ("SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY", "REDIS_URL", "DEBUG")
LOCAL = "postgres://127.0.0.1:5432/{}"


def ledgers() -> list[Path]:
    """The memories of the five LoCoMo ledgers, which are not shipped: none, if they are not here."""
    data = os.environ.get("PALIMPSEST_DATA") or ROOT.parent / "shared" / "data"
    return sorted(Path(data).glob("locomo/*.memories.jsonl"))


@contextmanager
def folder() -> Iterator[Path]:
    """A folder with fresh keys, on the checkout's own disk: the temporary one may lie in memory."""
    parent = ROOT / "var" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    for name in NAMES:
        create_key_file(made / "keys", name)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def environment(at: Path, url: str, queue_url: str = "") -> dict[str, str]:
    """What a process of the service is started with: its settings are made from this and nothing else."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return kept | {"DATABASE_URL": url, "REDIS_URL": queue_url, "VAR_DIR": str(at), "KEYS_DIR": str(at / "keys")}


@contextmanager
def database(kind: str, at: Path) -> Iterator[str]:
    """An empty database of this kind; its URL."""
    if kind == "sqlite":
        inner = Path(tempfile.mkdtemp(dir=at))
        try:
            yield f"sqlite:///{inner / 'bench.sqlite3'}"
        finally:
            shutil.rmtree(inner, ignore_errors=True)
        return
    server, name = postgresql(), f"palimpsest_bench_{os.getpid()}"
    _run(server, "DROP DATABASE IF EXISTS {}", name)
    _run(server, "CREATE DATABASE {}", name)
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        _run(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


@contextmanager
def queue(kind: str, at: Path) -> Iterator[str]:
    """A Redis server of its own, where one is installed, for the benches on PostgreSQL; its URL. Else the queue is in
    the database."""
    program = shutil.which("redis-server")
    if kind == "sqlite" or program is None:
        yield ""
        return
    path = Path(tempfile.mkdtemp(prefix="redis-")) / "socket"  # a socket's path has 107 characters at most
    server = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(path), "--dir", str(at), "--appendonly", "yes"],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not path.exists() and server.poll() is None:
            time.sleep(0.05)
        yield f"unix://{path}"
    finally:
        server.terminate()
        server.wait(10)
        shutil.rmtree(path.parent, ignore_errors=True)


def postgresql() -> str:
    """The URL of a PostgreSQL database to make others from: BENCH_DATABASE_URL, or a local server that lets us in.

    Empty when there is none.
    """
    given = os.environ.get("BENCH_DATABASE_URL", "")
    candidates = [given] if given else [LOCAL.format(name) for name in ("postgres", "test")]
    return next((url for url in candidates if _may_create(url)), "")


def _may_create(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=3) as connection:
            row = connection.execute(
                "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
    except psycopg.Error:
        return False
    return bool(row and row[0])


def _run(url: str, statement: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
