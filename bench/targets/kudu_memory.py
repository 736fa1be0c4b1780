"""Measures whether the memory of the bundled target's nodes stays flat over a simulated hour.

Clients execute 50 operations per second on rows with a fixed set of keys, and alters that leave the
tables as they are, so a node's memory must not grow with time. Every five simulated minutes, the
bench adds up the sizes of all objects that can be reached from a node's tasks, except objects of
the simulation (its loop, connections, disk). Run it with `python -m bench.targets.kudu_memory
[--minutes N]`. The exit code is 1 if a node's memory is not flat, or if no operation succeeded.

Some data have a fixed limit that they would not reach within an hour, so the bench lets them reach
it early. The masters keep 4,096 answers to DDL (`REPLIES_MAX`), and there are enough alters to
reach this number in minute 14. The history of rows, which Kudu keeps for a week, is kept for only
`HISTORY_S` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import sys
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bench.measure import machine
from bench.targets.kudu_simulation import ROWS, Measured, alter_request, run
from harness.plugins import Request, Session

EVERY_MINUTES: Final = 5
FLAT_FROM_MINUTE: Final = 15
GROWTH_MAX: Final = 1.05
"""For a flat curve, the sum of the later samples is at most this multiple of the earlier sum."""
HISTORY_S: Final = 300
ALTERS: Final = 11
"""One in this number of operations is an alter."""
SHOWN: Final = 12
_KERNEL: Final = ("harness.environments.", "asyncio", "_asyncio")
_SHARED: Final = (type, types.ModuleType, types.CodeType)
_NODE: Final = "targets.kudu."


def size_of(item: object) -> int:
    """Return the bytes of an object, without the objects to which it refers."""
    if isinstance(item, msgspec.Raw):
        return type(item).__basicsize__ + sys.getsizeof(bytes(item))
    return sys.getsizeof(item)


def sizes(roots: list[Any]) -> Counter[str]:
    """Add up the bytes of all objects reachable from `roots`, by class of the target.

    An object of another class, such as a list, counts for the target's class that refers to it.
    """
    modules = {
        id(vars(module)) for module in [*sys.modules.values()] if hasattr(module, "__dict__")
    }
    totals: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = [(root, "") for root in roots]
    while waiting:
        item, owner = waiting.pop()
        if id(item) in seen or id(item) in modules:
            continue
        seen.add(id(item))
        kind = type(item)
        if isinstance(item, _SHARED) or kind.__module__.startswith(_KERNEL):
            continue
        if kind.__module__.startswith(_NODE):
            owner = f"{kind.__module__.removeprefix(_NODE)}.{kind.__qualname__}"
        totals[owner] += size_of(item)
        waiting += [(inner, owner) for inner in gc.get_referents(item)]
    return totals


def request(count: int) -> Request:
    """Return the request number `count`: an operation on rows, or sometimes an alter."""
    if count % ALTERS == 0:
        return alter_request(f"t{count // ALTERS % ROWS.tables}", count)
    return ROWS.request(count)


class Samples:
    """The memory of each node in bytes, by minute and by the class that holds it."""

    def __init__(self) -> None:
        self.by_node: dict[str, dict[int, Counter[str]]] = {}
        self.growing: list[str] = []
        """The nodes whose memory is not flat. `lines` fills the list."""

    def take(self, session: Session, minute: int) -> None:
        machines = session.cluster._machines  # type: ignore[attr-defined]
        for name, host in machines.items():
            tasks = sorted(asyncio.all_tasks(host.incarnation.loop), key=asyncio.Task.get_name)
            held = sizes([task.get_coro() for task in tasks])
            self.by_node.setdefault(name, {})[minute] = held

    def lines(self) -> Iterator[str]:
        """Yield the report: KiB by node and minute, which nodes are flat, which classes grew."""
        minutes = [*next(iter(self.by_node.values()))]
        yield "KiB  " + "".join(f"{minute:>7}" for minute in minutes) + "  minute"
        grown: Counter[str] = Counter()
        for node, samples in self.by_node.items():
            later = [held for minute, held in samples.items() if minute >= FLAT_FROM_MINUTE]
            half = len(later) // 2
            early, late = sum(later[:half], Counter()), sum(later[-half:], Counter())
            growth = late.total() / early.total()
            grown += Counter({o: (late[o] - early[o]) // half for o in late | early})
            totals = "".join(f"{held.total() / 1024:7.0f}" for held in samples.values())
            verdict = "flat"
            if growth > GROWTH_MAX:
                verdict = "GROWS"
                self.growing.append(node)
            yield f"{node:<5}{totals}  {verdict}: x {growth:.3f} from minute {FLAT_FROM_MINUTE} on"
        yield "Growth in bytes, over all nodes, by the class that holds the memory:"
        yield from (f"{size:>9,}  {owner}" for owner, size in grown.most_common(SHOWN))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60, help="simulated minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flags", default=f"tablet_history_max_age_sec={HISTORY_S}")
    options = parser.parse_args()
    least = FLAT_FROM_MINUTE + EVERY_MINUTES
    if options.minutes < least:
        parser.error(f"--minutes is {options.minutes}; a flat curve shows after {least}")
    samples = Samples()

    async def body(session: Session, measured: Measured) -> None:
        del measured
        samples.take(session, 0)
        for minute in range(EVERY_MINUTES, options.minutes + 1, EVERY_MINUTES):
            await asyncio.sleep(60 * EVERY_MINUTES)
            samples.take(session, minute)

    rate = ROWS.rate * ALTERS / (ALTERS - 1)
    load = dataclasses.replace(ROWS, rate=rate, request=request, flags=options.flags)
    measured = run(load, options.seed, body)
    print(*samples.lines(), sep="\n")
    print(
        f"{measured.ok} operations ok, {measured.not_ok} not ok, in {measured.simulated_s:.0f} "
        f"simulated s and {measured.cpu_s:.0f} CPU s on one core of {machine()}"
    )
    return 1 if samples.growing or not measured.ok else 0


if __name__ == "__main__":
    raise SystemExit(main())
