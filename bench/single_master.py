"""One master, and it is down: what goes on without it, what waits, and what fails.

Tablet servers serve rows, so a client that knows where the tablets of a table are needs no master
for them, also when what it knows is older than `table_locations_ttl_ms`. A table that it does not
know waits for the master until the deadline, and DDL fails with a reason. Each outage has a cluster
of its own, with one master and three tablet servers:

* the master is killed, and locations are good for 5 minutes;
* the same, but they are good for 2 s only, so that the client asks for them again all the time;
* the same, but the master is paused: it takes connections and says nothing.

`python -m bench.single_master [--env sim|process] [--seconds N] [--seed N]`; exit status 1
where a row of the table does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bench.claims import Claim, tell
from bench.measure import machine
from harness.ops import OpType
from harness.plugins import Completion
from tests.kudu.deploy import Deployed, deploy

CACHED: Final = ("c0", "c1", "c2")
UNKNOWN: Final = "u"  # no client of the load has used it
CLIENTS: Final = 4
PAUSE_S: Final = 0.1  # between the operations of a client
DEADLINE_S: Final = 2.0
RETURN_S: Final = 5.0
SHARE: Final = 0.99
LATE_S: Final = {
    "sim": 0.01,
    "process": 0.5,
}
"""How far behind its deadline an end may be noticed."""
CLEAR: Final = re.compile(r"[A-Z_]+(/[A-Z_]+)?: \S+ .+", re.DOTALL)
"""A code, and words about it."""


@dataclass(frozen=True)
class Outage:
    """How the master goes away, and how long locations are good for."""

    title: str
    ttl_ms: int
    paused: bool = False

    async def begin(self, cluster: Deployed, seconds: float) -> None:
        """The master is gone."""
        if self.paused:
            await cluster.session.cluster.pause("m1", lease_s=seconds + 60)
        else:
            await cluster.session.cluster.kill("m1")

    async def end(self, cluster: Deployed) -> None:
        """It is back."""
        if self.paused:
            await cluster.session.cluster.resume("m1")
        else:
            await cluster.session.cluster.start("m1")


OUTAGES: Final = (
    Outage("killed", 300_000),
    Outage("killed, locations expired", 2_000),
    Outage("paused, locations expired", 2_000, paused=True),
)


@dataclass
class Tally:
    """How operations of one sort ended."""

    cluster: Deployed
    types: Counter[OpType] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    unclear: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    async def do(self, client: Any, f: str, **value: Any) -> Completion:
        """One operation, counted."""
        begin_ns = self.cluster.env.clock.monotonic_ns()
        done = await self.cluster.do(client, f, timeout_s=DEADLINE_S, **value)
        took_s = (self.cluster.env.clock.monotonic_ns() - begin_ns) / 1e9
        self.longest_s = max(self.longest_s, took_s)
        self.types[done.type] += 1
        if done.type is not OpType.OK:
            error = done.error or ""
            self.errors[error.partition(":")[0]] += 1
            if not CLEAR.fullmatch(error):
                self.unclear.append(f"{f}: {error!r}")
        return done

    def told(self) -> str:
        """In words."""
        types = ", ".join(f"{self.types[t]} {t.value}" for t in OpType if self.types[t])
        return f"{types or 'none'}; longest {self.longest_s:.2f} s"


class Load:
    """What clients do while the master is down, and what came of it."""

    def __init__(self, cluster: Deployed) -> None:
        self.cluster = cluster
        self.cached, self.unknown, self.ddl = Tally(cluster), Tally(cluster), Tally(cluster)
        self.written: dict[str, dict[str, str]] = {name: {} for name in CACHED}
        self.wrong: list[str] = []
        """Rows that were not read as they were acknowledged."""
        self.refused: set[str] = set()
        """Tables whose creation failed."""
        self.over = False
        self._numbers = itertools.count()

    async def prepare(self) -> list[asyncio.Task[None]]:
        """Tables, and clients that know what they may; the load begins when this is over."""
        maker = self.cluster.new_client()
        for name in (*CACHED, UNKNOWN, "d"):
            await self.cluster.ok(maker, "create", name=name)
            await self.cluster.until_done(maker, "is-create-done", name)
        clients = [self.cluster.new_client() for _ in range(CLIENTS + 1)]
        for client in clients:
            for table in CACHED:
                done = await self.write(Tally(self.cluster), client, table)
                assert done.type is OpType.OK, done
        return [
            asyncio.create_task(work)
            for work in (
                *(self.rows(client, number) for number, client in enumerate(clients[1:])),
                self.strangers(clients[0]),
                self.changes(maker),
            )
        ]

    async def write(self, tally: Tally, client: Any, table: str) -> Completion:
        """A row under a key of its own."""
        number = next(self._numbers)
        key, value = f"k{number:06}", f"v{number}"
        rows = [["insert", key, {"a": value}]]
        done = await tally.do(client, "write", table=table, nonce=f"w{number}", rows=rows)
        if done.type is OpType.OK and table in self.written:
            self.written[table][key] = value
        return done

    async def scan(self, tally: Tally, client: Any, table: str) -> Completion:
        """All rows, of which none may be missing that was acknowledged before."""
        written = dict(self.written.get(table, {}))
        done = await tally.do(client, "scan", table=table)
        if done.type is OpType.OK:
            parts = done.value["parts"]
            found = {key: row.get("a") for part in parts for key, row in part["rows"]}
            lost = [key for key, value in written.items() if found.get(key) != value]
            self.wrong += [f"{table} {key}: {found.get(key)}" for key in lost]
        return done

    async def rows(self, client: Any, number: int) -> None:
        """A client that knows its tables: it writes, reads what was written, and scans."""
        for count in itertools.count(number):
            if self.over:
                return
            table = CACHED[count % len(CACHED)]
            written = self.written[table]
            if count % 10 < 5:
                await self.write(self.cached, client, table)
            elif count % 10 < 9:
                key = list(written)[count % len(written)]
                done = await self.cached.do(client, "read", table=table, key=key)
                if done.type is OpType.OK and (done.value["row"] or {}).get("a") != written[key]:
                    self.wrong.append(f"{table} {key}: {done.value['row']}")
            else:
                await self.scan(self.cached, client, table)
            await asyncio.sleep(PAUSE_S)

    async def strangers(self, knows_others: Any) -> None:
        """Clients that know nothing, and one that knows other tables, want rows of another."""
        for count in itertools.count():
            if self.over:
                return
            client = knows_others if count % 2 else self.cluster.new_client()
            work = self.write if count % 3 else self.scan
            await work(self.unknown, client, UNKNOWN)
            await asyncio.sleep(PAUSE_S)

    async def changes(self, client: Any) -> None:
        """DDL of every kind, by a client that knows who led, and its reads."""
        for count in itertools.count():
            if self.over:
                return
            made = await self.ddl.do(client, "create", name=f"n{count}", partitions=1)
            if made.type is OpType.FAIL:
                self.refused.add(f"n{count}")
            await self.ddl.do(client, "alter", name="d", steps=[["add", f"x{count}"]])
            await self.ddl.do(client, "rename", name="d", new_name=f"r{count}")
            await self.ddl.do(client, "delete", name="d")
            await self.ddl.do(client, "list")
            await asyncio.sleep(PAUSE_S)

    async def returned(self) -> float:
        """Seconds until clients that know nothing have written to a table and scanned it."""
        begin_ns = self.cluster.env.clock.monotonic_ns()
        for work in (self.write, self.scan):
            while (
                await work(Tally(self.cluster), self.cluster.new_client(), UNKNOWN)
            ).type is not OpType.OK:
                took_s = (self.cluster.env.clock.monotonic_ns() - begin_ns) / 1e9
                assert took_s < self.cluster.limit_s, f"no rows {took_s:.0f} s after the return"
        return (self.cluster.env.clock.monotonic_ns() - begin_ns) / 1e9


async def suffer(cluster: Deployed, outage: Outage, seconds: float, late_s: float) -> list[Claim]:
    """One outage of `seconds`, and what is claimed of it."""
    load = Load(cluster)
    tasks = await load.prepare()
    await outage.begin(cluster, seconds)
    await asyncio.sleep(seconds)
    load.over = True  # what is under way ends before the master returns
    await asyncio.gather(*tasks)
    await outage.end(cluster)
    back_s = await load.returned()
    fresh = cluster.new_client()
    for table in CACHED:
        assert (await load.scan(Tally(cluster), fresh, table)).type is OpType.OK
    done_anyway = load.refused & {one[0] for one in (await cluster.ok(fresh, "list"))["tables"]}
    return list(claims(load, outage.title, late_s, back_s, sorted(done_anyway)))


def claims(
    load: Load, where: str, late_s: float, back_s: float, done_anyway: list[str]
) -> Iterator[Claim]:
    """The rows of the table."""
    cached, unknown, ddl = load.cached, load.unknown, load.ddl
    total = cached.types.total()
    share = cached.types[OpType.OK] / total if total else 0.0
    yield Claim(
        where,
        f"rows of cached tables: at least {SHARE:.0%} ok",
        f"{share:.2%}: {cached.told()}",
        share >= SHARE,
    )
    yield Claim(
        where,
        "acknowledged rows are read as written, then and after",
        f"{sum(map(len, load.written.values()))} rows, {len(load.wrong)} wrong",
        not load.wrong,
    )
    yield Claim(
        where,
        f"rows of unknown tables: fail within {DEADLINE_S:g} s",
        unknown.told(),
        {*unknown.types} == {OpType.FAIL} and unknown.longest_s <= DEADLINE_S + late_s,
    )
    yield Claim(
        where,
        f"rows of unknown tables: within {RETURN_S:g} s of the return",
        f"{back_s:.2f} s",
        back_s <= RETURN_S,
    )
    yield Claim(
        where,
        f"DDL: fail or info within {DEADLINE_S:g} s",
        ddl.told(),
        bool(ddl.types) and not ddl.types[OpType.OK] and ddl.longest_s <= DEADLINE_S + late_s,
    )
    unclear = [*ddl.unclear, *unknown.unclear]
    codes = ", ".join(sorted(ddl.errors | unknown.errors))
    yield Claim(
        where, "each says why", f"{codes}; {len(unclear)} unclear", bool(codes) and not unclear
    )
    yield Claim(
        where,
        "tables whose creation failed are not there",
        f"{len(load.refused)} failed, {len(done_anyway)} there",
        not done_anyway,
    )


def run(
    environment: str, seconds: float, outages: tuple[Outage, ...] = OUTAGES, *, seed: int = 1
) -> Iterator[Claim]:
    """All outages, each in a cluster of its own."""
    for number, outage in enumerate(outages):
        yield from deploy(
            functools.partial(suffer, outage=outage, seconds=seconds, late_s=LATE_S[environment]),
            environment=environment,
            masters=1,
            seed=seed + number,
            flags=f"table_locations_ttl_ms={outage.ttl_ms}",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="sim", choices=sorted(LATE_S))
    parser.add_argument("--seconds", type=float, default=30.0, help="how long an outage lasts")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster")
    given = parser.parse_args()
    print(f"{given.env}, {machine()}; each outage lasts {given.seconds:g} s")
    return tell(run(given.env, given.seconds, seed=given.seed))


if __name__ == "__main__":
    raise SystemExit(main())
