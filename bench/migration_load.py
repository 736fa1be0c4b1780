"""The load of `bench.migration`: clients that know the masters of the beginning alone.

Some insert rows of keys of their own into one tablet, so that a gap is that of all of it; some make
tables and delete old ones. What was acknowledged is kept, to be looked for at the end, and when.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from harness.ops import OpType
from harness.plugins import Completion, Request, Session, System

TABLE: Final = "rows"
WRITERS: Final = 3
MAKERS: Final = 4
KEPT: Final = 4  # tables of one maker
OP_LIMIT_S: Final = 5.0
READ_LIMIT_S: Final = 30.0
WRITE_PAUSE_S: Final = 0.2
MAKE_PAUSE_S: Final = 1.0  # a tablet costs its servers many syncs, long after the acknowledgement


class Load:
    """Clients at work until `stop`."""

    def __init__(self, session: Session, system: System) -> None:
        """Nothing is done yet; clients know what those of `system` are told."""
        self._clock = session.env.clock
        self._system = system
        self._nonces = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False
        self._ok_ns: dict[str, list[int]] = {"rows": [], "DDL": []}
        self._rows: set[str] = set()
        self._tables: dict[str, bool | None] = {}  # acknowledged: there, gone, or nobody knows

    async def start(self) -> None:
        """Make the table and begin; raises `AssertionError` where not even that works."""
        client = self._system.client(0)
        made = await self._create(client, TABLE, READ_LIMIT_S)
        assert made.type is OpType.OK, made
        for number in range(WRITERS):
            self._tasks.append(asyncio.create_task(self._write(number)))
        for number in range(MAKERS):
            self._tasks.append(asyncio.create_task(self._make(number)))

    async def stop(self) -> None:
        """Let every client end what it is at."""
        self._over = True
        await asyncio.gather(*self._tasks)

    # --- clients -----------------------------------------------------------------------------

    async def _write(self, number: int) -> None:
        client = self._system.client(1 + number)
        for count in itertools.count():
            if self._over:
                return
            key = f"{number}.{count:06}"
            rows = [["insert", key, {"v": key}]]
            value = {"table": TABLE, "nonce": f"w{key}", "rows": rows}
            done = await client.invoke(Request("write", value), timeout_s=OP_LIMIT_S)
            if done.type is OpType.OK and done.value["rows"] == ["ok"]:
                self._rows.add(key)
                self._note("rows")
            await asyncio.sleep(WRITE_PAUSE_S)

    async def _make(self, number: int) -> None:
        client = self._system.client(1 + WRITERS + number)
        pause_s = MAKE_PAUSE_S * (1 + number / MAKERS)  # not all at once
        for count in itertools.count():
            if self._over:
                return
            name = f"d{number}.{count}"
            self._tables[name] = None
            done = await self._create(client, name, OP_LIMIT_S)
            if done.type is OpType.OK:
                self._tables[name] = True
                self._note("DDL")
            await asyncio.sleep(pause_s)
            old = f"d{number}.{count - KEPT}"
            if self._tables.get(old):
                self._tables[old] = None
                value = {"name": old, "nonce": f"n{next(self._nonces)}"}
                done = await client.invoke(Request("delete", value), timeout_s=OP_LIMIT_S)
                if done.type is OpType.OK:
                    self._tables[old] = False
                    self._note("DDL")
                await asyncio.sleep(pause_s)

    async def _create(self, client: Any, name: str, limit_s: float) -> Completion:
        nonce = f"n{next(self._nonces)}"
        shape = {"columns": ["v"], "partitions": 1, "replicas": 3}
        create = Request("create", {"name": name, "nonce": nonce, **shape})
        done: Completion = await client.invoke(create, timeout_s=limit_s)
        return done

    # --- what came of it ---------------------------------------------------------------------

    def _note(self, kind: str) -> None:
        self._ok_ns[kind].append(self._clock.monotonic_ns())

    def longest_gap_s(self, kind: str, start_ns: int, end_ns: int) -> float:
        """The longest time within [start, end] in which nothing of this kind was acknowledged."""
        within = [at for at in self._ok_ns[kind] if start_ns <= at <= end_ns]
        edges = [start_ns, *within, end_ns]
        return max(later - earlier for earlier, later in itertools.pairwise(edges)) / 1e9

    def acknowledged(self, kind: str) -> int:
        """Operations of this kind that were acknowledged."""
        return len(self._ok_ns[kind])

    async def missing(self) -> list[str]:
        """What was acknowledged and is not so: rows and tables that are not there, and tables that
        are there still. What cannot be read is missing as well.
        """
        client = self._system.client(99)
        scan = Request("scan", {"table": TABLE, "mode": "latest", "replica": "leader"})
        scanned = await client.invoke(scan, timeout_s=READ_LIMIT_S)
        listed = await client.invoke(Request("list", {}), timeout_s=READ_LIMIT_S)
        bad = [f"{op}: {done.error}" for op, done in (("scan", scanned), ("list", listed))
               if done.type is not OpType.OK]  # fmt: skip
        if bad:
            return bad
        found = {row[0] for part in scanned.value["parts"] for row in part["rows"]}
        names = {line[0] for line in listed.value["tables"]}
        bad = [f"row {key}" for key in sorted(self._rows - found)]
        for name, there in self._tables.items():
            if there is not None and there is not (name in names):
                bad.append(f"table {name} is {'not there' if there else 'there still'}")
        return bad
