"""Measures how many rows per second a cluster of processes or containers writes, and their cost.

The bench uses one table with 3 replicas. It has three phases: batches of 100 rows, at `--rate` rows
per second for `--seconds`; single rows, which each client writes one after the other; and rows of
100 bytes until the table has `--rows`. Then the resident memory of each tablet server is read. Run
it with `python -m bench.targets.kudu_rows --env process|docker`. The exit code is 1 if a claim in
the printed table does not hold. Latencies are measured by the clients, which share the machine with
the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from bench.measure import machine
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, Session, TargetSettings
from harness.plugins.options import default_values
from harness.registry import load_plugin
from targets.kudu import KuduTarget

TABLE: Final = "bench"
BATCH: Final = 100
CLIENTS: Final = 8
VALUE: Final = "x" * 90  # together with its key, a row has about 100 bytes
RATE_SHARE: Final = 0.99  # the part of `--rate` that the batches must reach
RESIDENT_MB_MAX: Final = 300
FAILED_MAX: Final = 100
"""A phase ends after this number of failed writes."""


class Claim(NamedTuple):
    """A claim `what` about the phase `where`. `measured` is the measured value as text."""

    where: str
    what: str
    measured: str
    holds: bool


def tell(claims: list[Claim]) -> int:
    """Print one line per claim; return the exit code, which is 1 if a claim does not hold."""
    for claim in claims:
        says = "holds" if claim.holds else "DOES NOT HOLD"
        print(f"{claim.where:<28} {claim.what:<54} {claim.measured:<44} {says}")
    return 0 if all(claim.holds for claim in claims) else 1


class Load:
    """Clients that write rows, and the counts and latencies of their writes."""

    def __init__(self, clients: list[Any]) -> None:
        self._clients = clients
        self._numbers = iter(range(1 << 60))
        self.reset()

    def reset(self) -> None:
        self.rows = 0
        self.failed = 0
        self.latencies: list[float] = []
        self.start = time.monotonic()

    def batch(self, size: int) -> dict[str, Any]:
        number = next(self._numbers)
        rows = [["insert", f"k{number:08}.{i:02}", {"v": VALUE}] for i in range(size)]
        return {"table": TABLE, "nonce": f"w{number}", "rows": rows}

    async def write(self, client: Any, size: int) -> None:
        begin = time.monotonic()
        done = await client.invoke(Request("write", self.batch(size)), timeout_s=30.0)
        self.latencies.append(time.monotonic() - begin)
        if done.type is OpType.OK:
            self.rows += size
        else:
            self.failed += 1

    async def until(self, over: Callable[[], bool], size: int, rate: float | None) -> None:
        """Let all clients write until `over()`, at no more than `rate` rows per second in total."""
        self.reset()
        pace = None if rate is None else CLIENTS * size / rate

        async def work(client: Any, first: int) -> None:
            due = time.monotonic() + (0.0 if pace is None else pace * first / CLIENTS)
            while not over() and self.failed < FAILED_MAX:
                if pace is not None:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    due += pace
                await self.write(client, size)

        await asyncio.gather(*(work(client, n) for n, client in enumerate(self._clients)))

    def claim(self, what: str, rate: float) -> Claim:
        """Return the claim that a phase reached `rate` rows per second without a failed write."""
        took, ordered = time.monotonic() - self.start, sorted(self.latencies)
        quantiles = ", ".join(
            f"p{100 * q:g} {1000 * ordered[int(q * (len(ordered) - 1))]:.1f} ms"
            for q in (0.5, 0.99)
        )
        text = (
            f"{self.rows} rows in {took:.1f} s = {self.rows / took:.0f}/s, "
            f"{self.failed} writes failed; {quantiles}"
        )
        holds = not self.failed and self.rows / took >= rate
        return Claim(what, f"at least {rate:.0f} rows/s", text, holds)


async def _waited(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():  # noqa: ASYNC110 - a remote fact
        await asyncio.sleep(0.1)


async def _prepare(system: Any, tablets: int) -> list[Any]:
    async def ready() -> bool:
        return bool((await system.ready()).ok)

    async def made() -> bool:
        done = await clients[0].invoke(Request("is-create-done", {"name": TABLE}), timeout_s=10.0)
        return bool(done.type is OpType.OK and done.value.get("done"))

    await _waited(ready)
    clients = [system.client(number) for number in range(CLIENTS)]
    create = {"name": TABLE, "nonce": "c", "columns": ["v"], "partitions": tablets, "replicas": 3}
    done = await clients[0].invoke(Request("create", create), timeout_s=30.0)
    assert done.type is OpType.OK, done
    await _waited(made)
    return clients


def _memory(rows: int, memory: dict[str, int | None]) -> Iterator[Claim]:
    for node, size in memory.items():
        text = "not known here" if size is None else f"{size / 1e6:.0f} MB"
        holds = size is not None and size <= RESIDENT_MB_MAX * 1e6
        yield Claim(f"{rows} rows: {node}", f"at most {RESIDENT_MB_MAX} MB resident", text, holds)


async def bench(session: Session, system: Any, options: argparse.Namespace) -> list[Claim]:
    """Run all phases, and scan the table; return the claims."""
    load = Load(await _prepare(system, options.tablets))
    end = time.monotonic() + options.seconds
    await load.until(lambda: time.monotonic() >= end, BATCH, options.rate)
    claims = [load.claim(f"batches of {BATCH}", RATE_SHARE * options.rate)]
    total = load.rows
    end = time.monotonic() + options.seconds / 3
    await load.until(lambda: time.monotonic() >= end, 1, None)
    claims.append(load.claim(f"single rows, {CLIENTS} clients", 1))
    total += load.rows
    await load.until(lambda: total + load.rows >= options.rows, BATCH, None)
    total += load.rows
    if load.latencies:
        claims.append(load.claim(f"batches of {BATCH}, unpaced", 1))
    tservers = [n for n, spec in session.cluster.nodes.items() if spec.role == "tserver"]
    memory = {node: (await session.cluster.usage(node)).memory_bytes for node in tservers}
    claims += _memory(total, memory)
    scanned = await system.client(99).invoke(
        Request("scan", {"table": TABLE, "mode": "latest", "replica": "leader"}), timeout_s=120.0
    )
    parts = scanned.value["parts"] if scanned.type is OpType.OK else []
    count = sum(len(part["rows"]) for part in parts)
    claims.append(Claim("a scan", "all that was acknowledged", f"{count} rows", count >= total))
    return claims


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="process", choices=["process", "docker"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="rows a second")
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows in the table after the last phase"
    )
    parser.add_argument("--tablets", type=int, default=3)
    options = parser.parse_args()
    target = KuduTarget()
    defaults = default_values(target.options)
    settings = TargetSettings(profile="strict", bugs=(), options=defaults | {"resend": 0})
    plan = DeploymentPlan(
        run_id="bench-rows", nodes=tuple(target.nodes(settings)), seed=1, knobs={}, folder=None
    )

    async def body(session: Session) -> list[Claim]:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        return await bench(session, system, options)

    print(f"{options.env}, {machine()}")
    return tell(load_plugin("environments", options.env).execute(plan, body))


if __name__ == "__main__":
    raise SystemExit(main())
