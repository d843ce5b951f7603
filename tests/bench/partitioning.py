"""The trail in partitions, tried: python -m tests.bench.partitioning [--rows 1000000] [--partitions 36]

On a PostgreSQL database of its own with the service's schema and so many made-up rows in the trail's two tables. Tried
are partitions by time (of entries: `audit_change` has no time) and by agent, of both. Of each it is told how long the
conversion takes, what the database refuses, which of the guards hold, what a write and a read cost before and after,
and whether the service's own verbs, a rollback and `verify_audit` work on the result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.bench import places

AGENTS = 1_000
FIRST = 1_000_000  # the first made-up agent's id
YEARS = "timestamptz '2023-01-01'"


def main() -> int:
    options = _options()
    if options.inner:
        Trial(options.rows, options.partitions).run()
        return 0
    with places.folder() as folder, places.database("postgresql", folder) as url:
        environment = places.environment(folder, url)
        command = [sys.executable, "-m", "tests.bench.partitioning", "--inner", *sys.argv[1:]]
        return subprocess.run(command, env=environment, cwd=places.ROOT, check=False).returncode


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="entries, with a change each")
    parser.add_argument("--partitions", type=int, default=36)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class Trial:
    def __init__(self, rows: int, partitions: int) -> None:
        self.rows, self.partitions = rows, partitions

    def run(self) -> None:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as self.connection:
            self.fill()
            self.measure("one table each")
            self.refused()
            self.by_time()
            self.measure(f"entries by time, {self.partitions} partitions")
            self.guards("audit_auditentry")
            self.service("by time")
            self.by_agent()
            self.measure(f"both by agent, {self.partitions} partitions")
            self.guards("audit_auditentry")
            self.guards("audit_change")
            self.service("by agent")

    # --- what there is

    def fill(self) -> None:
        each = self.rows // AGENTS
        with self.timed(f"{self.rows:,} entries with a change each made up"):
            self.run_sql("SET session_replication_role = replica")
            self.run_sql(f"""
                INSERT INTO audit_auditentry (agent_id, tenant_id, agent_label, seq, at, actor_kind, actor_label,
                    operation, detail, changes, distinct_tokens, key_id, mac)
                SELECT {FIRST} + a, 1, 'acme/agent' || a, s, {YEARS} + (s * interval '3 years' / {each}), 'agent',
                    'agent', 'remembered', '{{}}', 1, 100, 'abcdefgh', sha256(int8send(a * 1000000 + s))
                FROM generate_series(1, {each}) s, generate_series(1, {AGENTS}) a""")
            self.run_sql(f"""
                INSERT INTO audit_change (agent_id, seq, number, after, after_digest)
                SELECT {FIRST} + a, s, s, decode(repeat(md5((a * 1000000 + s)::text), 20), 'hex'),
                    sha256(int8send(a * 1000000 + s))
                FROM generate_series(1, {each}) s, generate_series(1, {AGENTS}) a""")
            self.run_sql("SET session_replication_role = origin")
        self.run_sql("VACUUM ANALYZE audit_auditentry")
        self.run_sql("VACUUM ANALYZE audit_change")
        size = "pg_size_pretty(pg_total_relation_size({}))"
        tables = [self.one(f"SELECT {size.format(repr(name))}") for name in ("audit_auditentry", "audit_change")]
        print(f"  entries {tables[0]}, changes {tables[1]}, with their indexes")

    # --- by time

    def refused(self) -> None:
        print("What PostgreSQL refuses:")
        self.tried(
            "partitions by time with the primary key and the unique key as they are",
            "CREATE TABLE tried (LIKE audit_auditentry INCLUDING ALL) PARTITION BY RANGE (at)",
        )
        self.tried(
            "partitions by agent with the primary key as it is",
            "CREATE TABLE tried (LIKE audit_auditentry INCLUDING ALL) PARTITION BY HASH (agent_id)",
        )

    def by_time(self) -> None:
        print("By time: the old table becomes the first partition, without a copy")
        with self.timed("  unique index over (agent_id, seq, at), built beside the work (CONCURRENTLY)"):
            self.run_sql("CREATE UNIQUE INDEX CONCURRENTLY entry_seq_at ON audit_auditentry (agent_id, seq, at)")
        with self.timed("  unique index over (id, at), likewise"):
            self.run_sql("CREATE UNIQUE INDEX CONCURRENTLY entry_id_at ON audit_auditentry (id, at)")
        end = f"{YEARS} + interval '3 years 1 day'"
        [end] = self.row(f"SELECT {end}")
        with self.timed("  check that all rows are before the next partition, validated beside the work"):
            self.run_sql(f"ALTER TABLE audit_auditentry ADD CONSTRAINT before CHECK (at < '{end}') NOT VALID")
            self.run_sql("ALTER TABLE audit_auditentry VALIDATE CONSTRAINT before")
        with self.timed("  the exchange itself, one transaction, nobody reads or writes meanwhile"), self.together():
            self.run_sql("ALTER TABLE audit_auditentry RENAME TO audit_auditentry_first")
            self.run_sql("ALTER TABLE audit_auditentry_first ALTER id DROP IDENTITY")
            self.run_sql("""CREATE TABLE audit_auditentry (LIKE audit_auditentry_first INCLUDING DEFAULTS
                INCLUDING CONSTRAINTS) PARTITION BY RANGE (at)""")
            self.run_sql("ALTER TABLE audit_auditentry DROP CONSTRAINT before")
            last = self.one("SELECT max(id) + 1 FROM audit_auditentry_first")
            self.run_sql(f"ALTER TABLE audit_auditentry ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START {last})")
            self.run_sql("ALTER TABLE audit_auditentry_first DROP CONSTRAINT audit_auditentry_pkey")
            self.run_sql("ALTER TABLE audit_auditentry_first ADD PRIMARY KEY USING INDEX entry_id_at")
            self.run_sql("ALTER TABLE audit_auditentry ADD PRIMARY KEY (id, at)")
            self.run_sql("CREATE UNIQUE INDEX entry_seq ON audit_auditentry (agent_id, seq, at)")
            self.move_triggers("audit_auditentry_first", "audit_auditentry")
            self.run_sql(f"""ALTER TABLE audit_auditentry ATTACH PARTITION audit_auditentry_first
                FOR VALUES FROM (MINVALUE) TO ('{end}')""")
            self.copy_indexes("audit_auditentry_first", "audit_auditentry")
            for place in range(self.partitions - 1):
                self.run_sql(f"""CREATE TABLE audit_auditentry_{place} PARTITION OF audit_auditentry FOR VALUES
                    FROM (timestamptz '{end}' + interval '{place} months')
                    TO (timestamptz '{end}' + interval '{place + 1} months')""")
        twice = f"""INSERT INTO audit_auditentry SELECT (t).* FROM (SELECT t FROM audit_auditentry t
            WHERE agent_id = {FIRST + 1} AND seq = 1) x"""
        self.tried("the same entry a second time", twice)
        again = twice.replace("(t).*", ", ".join(self.columns("audit_auditentry", at=f"timestamptz '{end}'")))
        self.tried(
            "the same agent and number a second time, at another time",
            again.replace("FROM (SELECT t FROM", "FROM (SELECT * FROM").replace(" t\n", "\n"),
        )

    # --- by agent

    def by_agent(self) -> None:
        print("By agent: rows are copied, into tables whose keys are (agent_id, seq) and (agent_id, seq, number)")
        for table, key in (("audit_auditentry", "agent_id, seq"), ("audit_change", "agent_id, seq, number")):
            with self.timed(f"  {table}, copied in one transaction, its indexes included"), self.together():
                self.run_sql(f"ALTER TABLE {table} RENAME TO old")
                if self.one("SELECT attidentity FROM pg_attribute WHERE attrelid = 'old'::regclass AND attname = 'id'"):
                    self.run_sql("ALTER TABLE old ALTER id DROP IDENTITY")
                self.run_sql(f"""CREATE TABLE {table} (LIKE old INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                    PARTITION BY HASH (agent_id)""")
                last = self.one("SELECT max(id) + 1 FROM old")
                self.run_sql(f"ALTER TABLE {table} ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START {last})")
                for place in range(self.partitions):
                    self.run_sql(f"""CREATE TABLE {table}_h{place} PARTITION OF {table}
                        FOR VALUES WITH (MODULUS {self.partitions}, REMAINDER {place})""")
                self.run_sql(f"INSERT INTO {table} SELECT * FROM old")
                self.run_sql(f"ALTER TABLE {table} ADD PRIMARY KEY ({key})")
                self.copy_indexes("old", table)
                self.move_triggers("old", table)
                self.run_sql("DROP TABLE old")
            self.run_sql(f"ANALYZE {table}")

    def copy_indexes(self, old: str, table: str) -> None:
        """Those that are no keys; they are named anew. One that a partition has already is taken, not built."""
        found = self.rows_of(f"""SELECT pg_get_indexdef(indexrelid) FROM pg_index
            WHERE indrelid = '{old}'::regclass AND NOT indisunique""")
        for place, (definition,) in enumerate(found):
            _, _, what = definition.partition(" USING ")
            self.run_sql(f"CREATE INDEX {table}_{len(old)}_{place} ON {table} USING {what}")

    def move_triggers(self, old: str, new: str) -> None:
        found = self.rows_of(f"""SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger
            WHERE tgrelid = '{old}'::regclass AND NOT tgisinternal AND tgparentid = 0""")
        for name, definition in found:
            self.run_sql(f"DROP TRIGGER {name} ON {old}")
            self.run_sql(definition.replace(f"public.{old}", f"public.{new}"))

    # --- what holds

    def guards(self, table: str) -> None:
        from audit import guards

        print(f"Guards of {table}:")
        part = self.one(f"SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = '{table}'::regclass LIMIT 1")
        print(f"  missing, by the service's own check: {guards.missing() or 'none'}")
        for what in (f"DELETE FROM {table}", f"DELETE FROM {part}", f"UPDATE {part} SET agent_id = agent_id"):
            self.tried(what.replace(part, "PARTITION"), f"{what} WHERE agent_id = (SELECT min(agent_id) FROM {part})")
        for what in (f"TRUNCATE {table}", f"TRUNCATE {part}", f"DROP TABLE {part}"):
            self.tried(what.replace(part, "PARTITION"), what)
        print("  (what was not refused was taken back)")

    def service(self, how: str) -> None:
        """An agent's life, by the service's own verbs."""
        from django.db import connection

        from audit.trail import Actor
        from memory.agents import lifecycle
        from memory.policy.validation import Draft
        from memory.time_machine import replay, rollback
        from memory.writing import operations
        from refinement import loop

        connection.close()
        me = Actor.operator("bench")
        try:
            agent, _ = lifecycle.create("acme", f"lives-{how.replace(' ', '-')}", model="builtin/dedupe", actor=me)
            operations.remember(agent, [Draft(f"The boat needs paint number {n % 40}.") for n in range(100)], me)
            operations.discard(agent, [1, 2], me)
            done = loop.refine(agent, trigger="manual")
            rollback.roll_back(agent, rollback.What.session(done.number), me)
            agent.refresh_from_db()
            problems = list(replay.problems_of(agent.pk))
            print(f"The service, {how}: {agent.audit_seq} entries, one session, rolled back: {problems or 'sound'}")
        except Exception as failure:  # noqa: BLE001  whatever breaks is the finding
            print(f"The service, {how}: BREAKS: {type(failure).__name__}: {str(failure).splitlines()[0]}")

    def measure(self, name: str) -> None:
        """What a look for an entry and an appended entry take, as the write path and its trigger do it."""
        each = self.rows // AGENTS
        reads, writes = [], []
        for place in range(300):
            agent = FIRST + 1 + place % AGENTS
            reads.append(
                self.seconds(f"SELECT mac FROM audit_auditentry WHERE agent_id = {agent} AND seq = {each // 2}")
            )
            with self.together():
                seq = self.one(f"SELECT max(seq) + 1 FROM audit_auditentry WHERE agent_id = {agent}")
                writes.append(
                    self.seconds(f"""
                    INSERT INTO audit_auditentry (agent_id, tenant_id, agent_label, seq, at, actor_kind, actor_label,
                        operation, detail, changes, distinct_tokens, key_id, mac)
                    VALUES ({agent}, 1, 'acme/agent', {seq}, {YEARS} + interval '3 years', 'agent', 'agent',
                        'remembered', '{{}}', 0, 100, 'abcdefgh', sha256('x'))""")
                )
        plan = self.rows_of(f"EXPLAIN SELECT mac FROM audit_auditentry WHERE agent_id = {FIRST + 1} AND seq = 5")
        scans = sum("Scan" in line for (line,) in plan)
        half = [1e6 * statistics.median(each) for each in (reads, writes)]
        print(
            f"{name}: an entry found in {half[0]:.0f} µs ({scans} partitions looked into), appended in {half[1]:.0f} µs"
        )

    # --- how it is asked

    def columns(self, table: str, **instead: str) -> Iterator[str]:
        names = self.rows_of(f"""SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0
            AND NOT attisdropped ORDER BY attnum""")
        return (instead.get(name, name) for (name,) in names)

    def seconds(self, statement: str) -> float:
        started = time.perf_counter()
        self.run_sql(statement)
        return time.perf_counter() - started

    def run_sql(self, statement: str) -> None:
        self.connection.execute(statement)  # type: ignore[arg-type]

    def rows_of(self, statement: str) -> list[tuple[str, ...]]:
        return self.connection.execute(statement).fetchall()  # type: ignore[arg-type]

    def row(self, statement: str) -> tuple[str, ...]:
        return self.rows_of(statement)[0]

    def one(self, statement: str) -> str:
        return self.row(statement)[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.connection.transaction():
            yield

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        print(f"{what}: {time.perf_counter() - started:.2f} s", flush=True)

    def tried(self, what: str, statement: str) -> None:
        """Do it, and take it back."""
        try:
            with self.connection.transaction(force_rollback=True):
                self.run_sql(statement)
            print(f"  {what}: done")
        except psycopg.Error as refusal:
            print(f"  {what}: refused: {str(refusal).splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
