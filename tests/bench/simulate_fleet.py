"""A million agents over thirty days, simulated: who waits, how long, and what models and database are asked for.

    python -m tests.bench.simulate_fleet [--agents 1000000] [--days 30] [--workers 240] [--seed 1] …

Plain Python in steps of ten seconds, the same for the same seed; some minutes for a million agents. Due dates, their
spread, back-off and the pauses of a provider that does not answer are the product's own functions
(`memory.agents.due_dates`, `refinement.schedule`, `refinement.providers`), and so is how many wake-ups wait
(`refinement.backlog`); who stands in line, the fair choice of turns and who is woken are made again here, over numbers
instead of rows (`tests/unit/test_line.py` and `test_turns.py` hold the product's).

What is assumed, each an option or a constant below, none of it measured: how many tokens agents write (lognormal over
agents and over tenants), how sessions end, how long a model takes. What a session writes to the database is measured
(`tests/bench/fleet_bench.py`).
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

STEP = 10  # seconds
DAY = 86_400
START = datetime(2026, 1, 5, tzinfo=UTC)

# --- what is assumed
BUDGET, TARGET = 8_000, 5_000  # tokens of core memory, the product's defaults
TOKENS = 75  # of a memory
WRITTEN, WRITTEN_SPREAD, TENANT_SPREAD = 75.0, 1.4, 0.6  # tokens a day of the middle agent; of the logarithms
CALLS, CALLS_SPREAD = 6.0, 0.6  # of a model, by the middle session; at most 30
SECONDS_A_CALL, SECONDS_SPREAD = 8.0, 0.5
TOOLS_A_CALL = 3  # edits and searches that a reply asks for
FAILED, INCOMPLETE = 0.01, 0.03  # of sessions
ASKED_A_DAY = 0.0003  # of agents, by a person or a runtime
STILL_OVER = 0.02  # of sessions after which an agent is over its budget all the same
CRASH_EVERY = 7 * DAY  # seconds, of one worker
BIG = 0.05  # of all agents, one tenant's
OUTAGE = (10 * DAY + 9 * 3_600, 4 * 3_600)  # when the largest provider is gone, and for how long
PROVIDERS = (("openai", 0.6), ("anthropic", 0.3), ("ollama", 0.1))  # shares of the tenants
TURNS_A_SECOND = 30  # measured: chosen under one lock, with a thousand in line (tests/bench/fleet_bench.py)
DAYTIME = 0.6  # how much more, or less, is written at the height of the day, and of the night

# --- what the product writes, in rows and transactions (docs/scaling.md says how that was counted)
OF_SESSION, OF_CALL, OF_TOOL, OF_WRITE = (11, 5), (3, 3), (6, 1), (4, 1)

IDLE, DUE, IN_LINE, TAKEN = range(4)
SIZES = (1, 10, 100, 1_000, 10_000)


@dataclass(frozen=True)
class Service:
    """How it is set up."""

    workers: int  # processes that refine
    of_one: int  # … of them in one worker, which end together
    sweep_agents: int
    sweep_minutes: int
    tenant_sessions: int  # 0: any number
    sized: bool  # tenants that need more sessions at once than that have twice what they need


@dataclass
class Waits:
    """How long agents were due before their session began, in steps of a twentieth of the logarithm."""

    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[round(20 * math.log10(max(seconds, 1.0)))] += 1
        self.longest = max(self.longest, seconds)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def within(self, share: float) -> float:
        """What this share of them waited at most."""
        left = share * self.count
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return 10 ** (place / 20)
        return 0.0


@dataclass
class Day:
    """What was counted in one day; of each pair the sum of its steps, and the largest."""

    sessions: int = 0
    sweeps: int = 0
    waits: Waits = field(default_factory=Waits)
    line: list[float] = field(default_factory=lambda: [0.0, 0.0])
    due: list[float] = field(default_factory=lambda: [0.0, 0.0])
    under_way: list[float] = field(default_factory=lambda: [0.0, 0.0])
    calls: list[float] = field(default_factory=lambda: [0.0, 0.0])  # a minute
    rows: list[float] = field(default_factory=lambda: [0.0, 0.0])  # a second, of refinement
    commits: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def note(self, name: str, value: float) -> None:
        pair = getattr(self, name)
        pair[0] += value
        pair[1] = max(pair[1], value)


class Fleet:
    """The agents, their tenants, and what becomes due when."""

    def __init__(self, agents: int, seed: int) -> None:
        self.chance = random.Random(f"fleet {seed}")
        self.tenants = self._sizes(agents)
        self.tenant_of = [tenant for tenant, size in enumerate(self.tenants) for _ in range(size)]
        self.provider = [self._provider(tenant) for tenant in range(len(self.tenants))]
        factor = [self.chance.lognormvariate(0, TENANT_SPREAD) for _ in self.tenants]
        draw = self.chance.lognormvariate
        self.written = [WRITTEN * factor[tenant] * draw(0, WRITTEN_SPREAD) for tenant in self.tenant_of]
        self.failures = bytearray(agents)
        self.state = bytearray(agents)
        self.due_at = [0.0] * agents
        self.asked: set[int] = set()

    def _sizes(self, agents: int) -> list[int]:
        """One tenant with a great many; the others' by a Pareto law: most have a few, some have thousands."""
        sizes = [round(agents * BIG)]
        left = agents - sizes[0]
        while left:
            size = min(left, int(self.chance.paretovariate(0.85)), max(1, agents // 50))
            sizes.append(size)
            left -= size
        return sizes

    def _provider(self, tenant: int) -> str:
        """Of the largest tenant the one that fails."""
        names, shares = zip(*PROVIDERS, strict=True)
        return str(names[0] if tenant == 0 else self.chance.choices(names, shares)[0])


class Simulation:
    def __init__(self, agents: int, days: int, service: Service, seed: int) -> None:
        from memory.agents import due_dates
        from refinement import backlog as line
        from refinement import providers, schedule

        self.following, self.spread, self.retry_after = due_dates.following, due_dates.spread, schedule.retry_after
        self.longest_pause, self.at_once = providers.LONGEST.total_seconds(), line.AT_ONCE
        self.fleet, self.service, self.days = Fleet(agents, seed), service, days
        self.chance = random.Random(f"run {seed}")
        self.steps = days * DAY // STEP
        self.coming: dict[int, list[int]] = defaultdict(list)  # step → agents that become due
        self.ending: dict[int, list[tuple[int, str]]] = defaultdict(list)  # step → sessions and how they end
        self.sessions: dict[int, tuple[int, int]] = {}  # open ones: agent, calls
        self.order: list[int] = []  # their numbers, to pick some at random
        self.number = 0
        self.due: dict[int, list[tuple[bool, float, int]]] = {}  # of each tenant, those not in line
        self.line: list[list[tuple[bool, float, int]]] = [[] for _ in self.fleet.tenants]
        self.taken = [0] * len(self.fleet.tenants)
        self.served = [0] * len(self.fleet.tenants)
        self.turns: list[tuple[int, int, int]] = []
        self.in_due = self.in_line = self.wakes = self.served_count = 0
        self.shut: set[str] = set()
        self.limit = self._limits()
        self.by_day = [Day() for _ in range(days)]
        self.by_size = {size: Waits() for size in SIZES}
        self.of_asked, self.beside_outage = Waits(), Waits()
        self.outcomes: dict[str, int] = defaultdict(int)
        self.backlog = [0] * (days * 4)
        self._first()

    def _limits(self) -> list[int]:
        """Sessions at once of each tenant."""
        most, mean = self.service.tenant_sessions, CALLS * SECONDS_A_CALL * 1.4
        if not self.service.sized or not most:
            return [most or 10**9] * len(self.fleet.tenants)
        return [max(most, math.ceil(2 * size * mean / (7 * DAY))) for size in self.fleet.tenants]

    def _first(self) -> None:
        """Agents were made over the years; those of the largest tenant in one week's office hours."""
        chance = self.chance
        for agent, tenant in enumerate(self.fleet.tenant_of):
            moment = (
                chance.random() * 7 * DAY
                if tenant
                else chance.randrange(5) * DAY + 9 * 3_600 + chance.random() * 28_800
            )
            core = TARGET + chance.random() * (BUDGET - TARGET) * 0.8
            self._plan(agent, 0.0, min(moment, self._over_budget(agent, 0.0, core)))

    def _plan(self, agent: int, now: float, at: float) -> None:
        at = max(at, now)
        self.fleet.due_at[agent] = at
        self.fleet.state[agent] = IDLE
        step = int(at // STEP) + (at > now)
        if step < self.steps:
            self.coming[step].append(agent)

    def _over_budget(self, agent: int, now: float, core: float) -> float:
        """When it outgrows its budget, by day rather than by night."""
        return in_daytime(now + (BUDGET - core) / self.fleet.written[agent] * DAY)

    # --- one step after another

    def run(self) -> None:
        sweep, stale = self.service.sweep_minutes * 60 // STEP, 300 // STEP
        back = OUTAGE[0] + OUTAGE[1] + self.longest_pause  # when somebody's probe has found it at the latest
        down = {int(OUTAGE[0] // STEP): self._go_down, int(back // STEP): self._come_back}
        for step in range(self.steps):
            now = float(step * STEP)
            if step in down:
                down[step](now)
            self._end(step, now)
            self._come_due(step, now)
            self._ask(now)
            self._crash(step, now)
            if step % sweep == 0:
                self._sweep(now)
            if step % stale == 0:
                self._wake()
            self._begin(step, now)
            self._note(step, now)

    def _come_due(self, step: int, now: float) -> None:
        fleet = self.fleet
        for agent in self.coming.pop(step, ()):
            if fleet.state[agent] != IDLE or fleet.due_at[agent] > now:
                continue  # asked for meanwhile
            if self._is_growth(agent):
                self._call(agent)
            else:
                self._is_due(agent)

    def _is_growth(self, agent: int) -> bool:
        """Who outgrows its budget is called at once; who is due by date, or again, waits for a sweep."""
        return self.fleet.written[agent] * 7 > BUDGET - TARGET and not self.fleet.failures[agent]

    def _is_due(self, agent: int) -> None:
        self.fleet.state[agent] = DUE
        place = (agent not in self.fleet.asked, self.fleet.due_at[agent], agent)
        heappush(self.due.setdefault(self.fleet.tenant_of[agent], []), place)
        self.in_due += 1

    def _call(self, agent: int, *, asked: bool = False) -> None:
        tenant = self.fleet.tenant_of[agent]
        if self.fleet.provider[tenant] in self.shut:
            self._is_due(agent)  # the next sweep would send it away
            return
        self._stand(tenant, agent, asked=asked)
        self.wakes += 1

    def _stand(self, tenant: int, agent: int, *, asked: bool) -> None:
        self.fleet.state[agent] = IN_LINE
        heappush(self.line[tenant], (not asked, self.fleet.due_at[agent], agent))
        self.in_line += 1
        if len(self.line[tenant]) == 1:
            heappush(self.turns, (self.taken[tenant], self.served[tenant], tenant))

    def _ask(self, now: float) -> None:
        """Somebody asks for an agent: it goes to the front of its tenant's."""
        fleet = self.fleet
        for _ in range(poisson(self.chance, len(fleet.state) * ASKED_A_DAY * STEP / DAY * daytime(now))):
            agent = self.chance.randrange(len(fleet.state))
            if fleet.state[agent] == IDLE:
                fleet.due_at[agent] = now
                fleet.asked.add(agent)
                self._call(agent, asked=True)

    def _sweep(self, now: float) -> None:
        """The first of each tenant, then the second of each, and so on, as many as there is room for. Those whose
        provider does not answer stay away, but for a few that are not counted here."""
        self.by_day[int(now // DAY)].sweeps += 1
        if self.in_line and self.in_due > self.service.sweep_agents - self.in_line:
            self._make_room()
        room = self.service.sweep_agents - self.in_line
        there = [tenant for tenant in self.due if self.fleet.provider[tenant] not in self.shut]
        while there and room > 0:
            if room < len(there):
                there.sort(key=lambda tenant: self.due[tenant][0][1:])
            for tenant in there[:room]:
                is_not_asked, _, agent = heappop(self.due[tenant])
                self.in_due -= 1
                self._stand(tenant, agent, asked=not is_not_asked)
                if not self.due[tenant]:
                    del self.due[tenant]
            room -= len(there)
            there = [tenant for tenant in there if tenant in self.due]
        self._wake()

    def _make_room(self) -> None:
        """All but those that somebody asked for are chosen anew."""
        for tenant in range(len(self.line)):
            self._send_away(tenant)

    def _send_away(self, tenant: int) -> None:
        for is_not_asked, _, agent in self.line[tenant]:
            if is_not_asked:
                self._is_due(agent)
                self.in_line -= 1
        self.line[tenant] = [each for each in self.line[tenant] if not each[0]]

    def _wake(self) -> None:
        self.wakes = max(self.wakes, min(self.at_once, self.in_line))

    def _go_on(self, now: float) -> None:
        """Who takes a turn, or has ended one, has another woken; when nobody is left in line, others are looked for."""
        if self._whose_turn() is not None:
            self.wakes += self.wakes < self.at_once
        elif not self.wakes and self._is_somebody_due():
            self._sweep(now)

    def _is_somebody_due(self) -> bool:
        if not self.shut and not self.service.tenant_sessions:
            return bool(self.due)
        return any(
            self.fleet.provider[tenant] not in self.shut and self.taken[tenant] < self.limit[tenant]
            for tenant in self.due
        )

    def _begin(self, step: int, now: float) -> None:
        """Workers that are woken take whose turn it is."""
        for _ in range(TURNS_A_SECOND * STEP):
            if not self.wakes or len(self.sessions) >= self.service.workers:
                return
            self.wakes -= 1
            tenant = self._whose_turn()
            if tenant is None:
                continue
            _, due_at, agent = heappop(self.line[tenant])
            self.in_line -= 1
            self.taken[tenant] += 1
            self.served_count += 1
            self.served[tenant] = self.served_count
            if self.line[tenant]:
                heappush(self.turns, (self.taken[tenant], self.served[tenant], tenant))
            self._open(agent, tenant, step, now, due_at)
            self._go_on(now)

    def _whose_turn(self) -> int | None:
        while self.turns:
            taken, served, tenant = self.turns[0]
            is_stale = taken != self.taken[tenant] or served != self.served[tenant] or not self.line[tenant]
            if is_stale or taken >= self.limit[tenant] or self.fleet.provider[tenant] in self.shut:
                heappop(self.turns)  # one that is passed over comes again when a session of its tenant ends
                continue
            return tenant
        return None

    def _open(self, agent: int, tenant: int, step: int, now: float, due_at: float) -> None:
        chance, fleet = self.chance, self.fleet
        fleet.state[agent] = TAKEN
        calls = min(30, 1 + int(chance.lognormvariate(math.log(CALLS), CALLS_SPREAD)))
        seconds = calls * chance.lognormvariate(math.log(SECONDS_A_CALL), SECONDS_SPREAD)
        self.number += 1
        self.sessions[self.number] = agent, calls
        self.order.append(self.number)
        draw = chance.random()
        how = "failed" if draw < FAILED else "incomplete" if draw < FAILED + INCOMPLETE else "completed"
        self.ending[step + max(1, round(min(seconds, 900.0) / STEP))].append((self.number, how))
        waited = now - due_at
        day = self.by_day[int(now // DAY)]
        day.sessions += 1
        day.waits.add(waited)
        if agent in fleet.asked:
            fleet.asked.discard(agent)
            self.of_asked.add(waited)
        if self.shut:
            self.beside_outage.add(waited)
        size = fleet.tenants[tenant]
        self.by_size[max(least for least in SIZES if least <= size)].add(waited)

    def _end(self, step: int, now: float) -> None:
        day = self.by_day[int(now // DAY)]
        calls = tools = ended = 0
        for number, how in self.ending.pop(step, ()):
            if number not in self.sessions:
                continue  # its worker died, or its provider went
            agent, made = self.sessions.pop(number)
            ended, calls, tools = ended + 1, calls + made, tools + made * TOOLS_A_CALL
            self._after(agent, how, now)
            self._go_on(now)
        self.minute_calls += calls
        self.minute_rows += ended * OF_SESSION[0] + calls * OF_CALL[0] + tools * OF_TOOL[0]
        self.minute_commits += ended * OF_SESSION[1] + calls * OF_CALL[1] + tools * OF_TOOL[1]
        if step % 6 == 5:
            day.note("calls", self.minute_calls)
            day.note("rows", self.minute_rows / 60)
            day.note("commits", self.minute_commits / 60)
            self.minute_calls = self.minute_rows = self.minute_commits = 0

    minute_calls = minute_rows = minute_commits = 0

    def _after(self, agent: int, how: str, now: float) -> None:
        """What `schedule.set_next` decides."""
        fleet, chance = self.fleet, self.chance
        self.outcomes[how] += 1
        tenant = fleet.tenant_of[agent]
        self.taken[tenant] -= 1
        if self.line[tenant]:
            heappush(self.turns, (self.taken[tenant], self.served[tenant], tenant))
        if how == "completed":
            fleet.failures[agent] = 0
            due = (self.following(START + timedelta(seconds=now), timedelta(days=7), agent) - START).total_seconds()
            over = (
                now + DAY
                if chance.random() < STILL_OVER
                else self._over_budget(agent, now, TARGET * (0.8 + 0.2 * chance.random()))
            )
            self._plan(agent, now, min(due, over))
            return
        failures = fleet.failures[agent] = min(fleet.failures[agent] + 1, 200)
        if failures == 1 and how in ("abandoned", "stopped"):
            self._plan(agent, now, now)
            return
        wait = self.retry_after(failures)
        moment = START + timedelta(seconds=now)
        self._plan(agent, now, now + (wait + self.spread(wait, f"{agent}/{moment.timestamp()}")).total_seconds())

    def _crash(self, step: int, now: float) -> None:
        """A worker's process dies: its session is found when its lease has run out; the others' are closed at once."""
        for _ in range(poisson(self.chance, self.service.workers / self.service.of_one * STEP / CRASH_EVERY)):
            share = len(self.sessions) * self.service.of_one // max(1, self.service.workers)
            for place, number in enumerate(self._some(share)):
                agent, calls = self.sessions.pop(number)
                later = step + ((600 + self.chance.randrange(300)) // STEP if place == 0 else 1)
                self.sessions[-number] = agent, calls  # which nobody drives
                self.ending[later].append((-number, "abandoned" if place == 0 else "stopped"))

    def _some(self, count: int) -> list[int]:
        self.order = [number for number in self.order if number in self.sessions]
        return self.chance.sample(self.order, min(count, len(self.order)))

    def _go_down(self, now: float) -> None:
        """Its calls wait for their time, and their sessions fail; no new one is begun, and who waits for it goes."""
        name = PROVIDERS[0][0]
        self.shut.add(name)
        for tenant, provider in enumerate(self.fleet.provider):
            if provider == name:
                self._send_away(tenant)
        for number in [n for n in self.sessions if n > 0]:
            agent, calls = self.sessions[number]
            if self.fleet.provider[self.fleet.tenant_of[agent]] == name:
                del self.sessions[number]
                self.sessions[-number] = agent, calls
                self.ending[int(now // STEP) + self.chance.randrange(1, 300 // STEP + 1)].append((-number, "failed"))

    def _come_back(self, now: float) -> None:
        self.shut.discard(PROVIDERS[0][0])
        for tenant, line in enumerate(self.line):
            if line:  # who was asked for
                heappush(self.turns, (self.taken[tenant], self.served[tenant], tenant))
        self._go_on(now)

    def _note(self, step: int, now: float) -> None:
        day = self.by_day[int(now // DAY)]
        day.note("line", self.in_line)
        day.note("due", self.in_due + self.in_line)
        day.note("under_way", len(self.sessions))
        quarter = int(now // (DAY / 4))
        self.backlog[quarter] = max(self.backlog[quarter], self.in_due + self.in_line)


# --- by day and by night


def daytime(now: float) -> float:
    """How much is done at this time of the day, of what is done on average."""
    return 1 + DAYTIME * math.sin(2 * math.pi * (now / DAY - 0.375))


def _inverse() -> list[float]:
    """Of each share of a day's work the time at which it is done."""
    done, found = 0.0, []
    for minute in range(1_440):
        done += daytime(minute * 60) / 1_440
        while len(found) < 1_440 and len(found) / 1_440 <= done:
            found.append(minute * 60.0)
    return found


_TIMES = _inverse()


def in_daytime(moment: float) -> float:
    day, share = divmod(moment, DAY)
    return day * DAY + _TIMES[min(int(share / 60), len(_TIMES) - 1)] if moment < 400 * DAY else moment


def poisson(chance: random.Random, mean: float) -> int:
    if mean > 30:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    level, count, product = math.exp(-mean), 0, chance.random()
    while product > level:
        count, product = count + 1, product * chance.random()
    return count


# --- what is told


def told(simulation: Simulation, agents: int) -> Iterator[str]:
    yield from by_day(simulation.by_day)
    yield ""
    yield from by_size(simulation)
    yield ""
    yield from chart(simulation.backlog)
    yield ""
    yield from altogether(simulation, agents)


def by_day(days: Sequence[Day]) -> Iterator[str]:
    """Of two figures in a cell the first is the day's mean, the second its most."""
    yield (
        "| day | sessions | sweeps | due, most | under way | model calls a minute | rows a second | commits a second "
        "| 99 % waited | longest wait |"
    )
    yield "| ---: " * 10 + "|"
    minutes, steps = DAY / 60, DAY / STEP
    for number, day in enumerate(days, 1):
        pairs = ((day.under_way, steps), (day.calls, minutes), (day.rows, minutes), (day.commits, minutes))
        cells = [f"{total / count:,.0f} / {most:,.0f}" for (total, most), count in pairs]
        waits = [lasting(day.waits.within(0.99)), lasting(day.waits.longest)]
        yield row(number, f"{day.sessions:,}", f"{day.sweeps:,}", f"{day.due[1]:,.0f}", *cells, *waits)


def by_size(simulation: Simulation) -> Iterator[str]:
    sizes = simulation.fleet.tenants
    yield row("tenants with agents", "tenants", "sessions", "half waited", "99 %", "longest")
    yield "| --- " + "| ---: " * 5 + "|"
    for least, most in zip(SIZES, (*(size - 1 for size in SIZES[1:]), 10**9), strict=True):
        count = sum(least <= size <= most for size in sizes)
        name = f"{least:,} to {most:,}" if most < 10**9 else f"{least:,} and more"
        if count:
            yield row(name, f"{count:,}", *waited(simulation.by_size[least]))
    yield row("(asked for, of all)", "", *waited(simulation.of_asked))
    yield row("(of the other providers, while one is gone)", "", *waited(simulation.beside_outage))


def waited(waits: Waits) -> tuple[str, ...]:
    found = (waits.within(0.5), waits.within(0.99), waits.longest)
    return (f"{waits.count:,}", *map(lasting, found))


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def chart(backlog: Sequence[int], width: int = 60) -> Iterator[str]:
    """The most that were due in each quarter of a day."""
    most = max(backlog) or 1
    yield f"due at most, by quarters of a day; a full line is {most:,}"
    for quarter, value in enumerate(backlog):
        yield f"{quarter // 4 + 1:>3}.{quarter % 4} {'█' * round(width * value / most):<{width}} {value:,}"


def altogether(simulation: Simulation, agents: int) -> Iterator[str]:
    days = simulation.by_day
    sessions = sum(day.sessions for day in days)
    written = sum(simulation.fleet.written) / TOKENS / DAY
    high = written * (1 + DAYTIME)
    yield f"{sessions:,} sessions, {sessions / len(days) / DAY:.2f} a second; outcomes {dict(simulation.outcomes)}"
    yield f"still due at the end: {simulation.in_due + simulation.in_line:,} of {agents:,} agents"
    yield f"tenants: {len(simulation.fleet.tenants):,}"
    yield (
        f"memories written by agents, of {TOKENS} tokens: {written:,.0f} a second, {high:,.0f} at the day's height; "
        f"{written * OF_WRITE[0]:,.0f} and {high * OF_WRITE[0]:,.0f} rows"
    )


def lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3_600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} d"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=240, help="processes that refine, on all machines")
    parser.add_argument("--of-one", type=int, default=16, help="of them in one worker: QUEUE_WORKERS")
    parser.add_argument("--sweep-agents", type=int, default=1_000)
    parser.add_argument("--sweep-minutes", type=int, default=10)
    parser.add_argument("--tenant-sessions", type=int, default=0, help="0: any number")
    parser.add_argument("--sized", action="store_true", help="large tenants have twice what they need")
    options = parser.parse_args()
    import django

    django.setup()
    service = Service(
        options.workers,
        options.of_one,
        options.sweep_agents,
        options.sweep_minutes,
        options.tenant_sessions,
        options.sized,
    )
    started = time.perf_counter()
    simulation = Simulation(options.agents, options.days, service, options.seed)
    simulation.run()
    print(service)
    print("\n".join(told(simulation, options.agents)))
    print(f"simulated in {time.perf_counter() - started:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
