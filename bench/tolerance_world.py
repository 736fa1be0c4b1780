"""One cluster in which nodes go down, every kind of operation, and what was acknowledged of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.claims import Claim
from harness.ops import OpType
from harness.plugins import Completion, Convergence
from harness.vocabularies import ddl, rows
from harness.vocabularies.members import AddMaster
from tests.kudu.deploy import Deployed

OLD: Final = "old"
LIMBO: Final = "limbo"
"""What is asked for without a majority is asked of this table: it may be done later."""
ROWS: Final = 100
REFUSED_S: Final = 3.0
UNRESPONSIVE_S: Final = 10.0
"""How long a tablet server is silent before new tablets go elsewhere."""
KINDS: Final = frozenset({*ddl.BY_NAME, *rows.BY_NAME})


@dataclass(frozen=True)
class Group:
    """The replicas of which some are killed: all masters, or those of the one tablet of `OLD`."""

    masters: int = 3
    replicas: int = 3
    of_masters: bool = True

    @property
    def size(self) -> int:
        """How many there are."""
        return self.masters if self.of_masters else self.replicas

    @property
    def tolerated(self) -> int:
        """How many of them may be down."""
        return (self.size - 1) // 2

    @property
    def title(self) -> str:
        """In the table."""
        one = "master" if self.of_masters else "replica"
        return f"{self.size} {one}" + ("s" if self.size > 1 else "")


class World:
    """One cluster, what is down in it, and what it acknowledged."""

    def __init__(self, cluster: Deployed, group: Group) -> None:
        self.cluster = cluster
        self.group = group
        self.down: list[str] = []
        self.tables: dict[str, list[str]] = {}
        """Acknowledged, with their columns."""
        self.rows: dict[str, dict[str, str]] = {OLD: {}}
        self.absent: set[str] = set()
        """Tables whose creation was refused, or whose deletion was acknowledged."""
        self.refused_keys: set[str] = set()
        self._nonces = itertools.count()
        self._nodes: dict[str, str] = {}
        """Tablet servers by uuid, asked for while all are up."""

    # --- the cluster -------------------------------------------------------------------------

    async def fill(self) -> None:
        """Two tables, one of them with rows."""
        client = self.cluster.new_client()
        for name in (OLD, LIMBO):
            made = {"partitions": 1, "replicas": self.group.replicas}
            await self.cluster.ok(client, "create", name=name, **made)
            await self.cluster.until_done(client, "is-create-done", name)
        self.tables[OLD] = ["a", "b"]
        self.rows[OLD] = {f"k{number:03}": f"v{number}" for number in range(ROWS)}
        first = [["insert", key, {"a": value}] for key, value in self.rows[OLD].items()]
        first.append(["insert", "limbo", {"a": "x"}])
        await self.cluster.ok(client, "write", table=OLD, nonce="first", rows=first)

    async def grow(self) -> None:
        """One master more, where their number is even."""
        if not self.group.of_masters or self.group.masters % 2:
            return
        name = f"m{self.group.masters}"
        add = self.cluster.system.operations[AddMaster.f]

        async def added() -> Convergence:
            told = await self.cluster.do(self.cluster.new_client(), "list-masters")
            masters = told.value["masters"] if told.type is OpType.OK else []
            voters = [node for node, _, kind in masters if kind == "VOTER"]
            if name not in [node for node, *_ in masters]:
                await add([name])
            return Convergence(ok=name in voters, pending=(str(told),))

        await self.cluster.until(f"{name} a voter", added)
        await self.cluster.until_ready()

    async def followers(self) -> tuple[str | None, list[str]]:
        """Who leads the group, and the other members that are up."""
        if self.group.of_masters:
            roles = await self.cluster.system.roles()
            leader, members = roles.leader, list(roles.candidates)
            if leader is not None and not roles.by_node[leader].ready:
                leader = None
        else:
            client = self.cluster.new_client()
            (tablet,) = (await self.cluster.ok(client, "locate", name=OLD))["tablets"]
            if not self._nodes:
                dumps = (await self.cluster.system.snapshot())["tservers"]
                self._nodes = {dump["uuid"]: node for node, dump in dumps.items()}
            leader = self._nodes.get(tablet["leader"])
            members = [self._nodes[uuid] for uuid in tablet["replicas"]]
        leader = None if leader in self.down else leader
        return leader, [name for name in members if name not in {leader, *self.down}]

    async def until_led(self) -> str:
        """Wait for a leader that is up."""

        async def led() -> Convergence:
            leader, others = await self.followers()
            return Convergence(ok=leader is not None, pending=(str(others),))

        await self.cluster.until("led", led)
        leader, _ = await self.followers()
        assert leader is not None
        return leader

    async def kill(self, name: str) -> None:
        """It is down."""
        await self.cluster.session.cluster.kill(name)
        self.down.append(name)

    async def kill_tolerated(self) -> None:
        """As many as may be down, each time the leader; the rest go on."""
        for _ in range(self.group.tolerated):
            await self.kill(await self.until_led())
        await self.until_led()
        if not self.group.of_masters and self.down:
            await asyncio.sleep(UNRESPONSIVE_S + 2)

    async def kill_one_more(self) -> None:
        """A follower if there is one, so that a leader is left with too few."""
        leader, others = await self.followers()
        await self.kill(others[0] if others else str(leader))

    async def restore(self) -> None:
        """All return, and come to rest."""
        for name in self.down:
            await self.cluster.session.cluster.start(name)
        self.down = []
        await self.cluster.until_ready()
        await self.cluster.until_converged()

    # --- operations --------------------------------------------------------------------------

    async def every_kind(self, name: str, client: Any = None) -> list[tuple[str, Completion]]:
        """Every kind of operation, by `client` or one that knows nothing; how each ended."""
        client = client or self.cluster.new_client()
        ended: list[tuple[str, Completion]] = []

        async def do(f: str, **value: Any) -> bool:
            done = await self.cluster.do(client, f, **value)
            ended.append((f, done))
            return done.type is OpType.OK

        first, doomed = f"{name}-first", f"{name}-doomed"
        made = {"replicas": self.group.replicas, "partitions": 1}
        if await do("create", name=first, **made):
            self.tables[first] = ["a", "b"]
        await self.cluster.until_done(client, "is-create-done", first)
        for f in ("is-create-done", "locate"):
            await do(f, name=first)
        if await do("alter", name=first, steps=[["add", "late"]]):
            self.tables[first] = ["a", "b", "late"]
        await do("is-alter-done", name=first)
        if await do("rename", name=first, new_name=name):
            self.tables[name] = self.tables.pop(first)
            self.absent.add(first)
        await do("get", name=name)
        await do("list")
        for table in (OLD, name):
            key, value = f"{name}-{table}", f"v{next(self._nonces)}"
            written = [["insert", key, {"a": value}]]
            if await do("write", table=table, nonce=f"w{next(self._nonces)}", rows=written):
                self.rows.setdefault(table, {})[key] = value
            await do("read", table=table, key=key)
            await do("scan", table=table, mode="latest", replica="leader")
            await do("scan", table=table, mode="snapshot", replica="any")
            await do("scan", table=table, mode="read-your-writes", replica="any")
        if await do("create", name=doomed, **made) and await do("delete", name=doomed):
            self.absent.add(doomed)
        return ended

    async def knowing(self) -> list[Any]:
        """Clients that know the leader, of the masters or of the tablet: one for each write."""
        clients = [self.cluster.new_client() for _ in range(4)]
        for client in clients:
            await self.cluster.ok(client, "list")
            await self.cluster.ok(client, "read", table=OLD, key="limbo")
        return clients

    async def every_write(self, knowing: Sequence[Any]) -> list[tuple[str, Completion]]:
        """What changes anything, all at once, by clients that know the leader, and by others."""
        fresh = [self.cluster.new_client() for _ in knowing]
        ask = self._change if self.group.of_masters else self._write
        groups = {"knowing": knowing, "fresh": fresh}
        return await asyncio.gather(
            *(
                ask(client, number, who)
                for who, clients in groups.items()
                for number, client in enumerate(clients)
            )
        )

    async def _change(self, client: Any, number: int, who: str) -> tuple[str, Completion]:
        """DDL that changes something."""
        f, value = (
            ("create", {"name": f"new-{who}", "replicas": self.group.replicas}),
            ("alter", {"name": LIMBO, "steps": [["add", f"c-{who}"]]}),
            ("rename", {"name": LIMBO, "new_name": f"elsewhere-{who}"}),
            ("delete", {"name": LIMBO}),
        )[number]
        done = await self.cluster.do(client, f, timeout_s=REFUSED_S, **value)
        if f == "create" and done.type is OpType.FAIL:
            self.absent.add(f"new-{who}")
        return f, done

    async def _write(self, client: Any, number: int, who: str) -> tuple[str, Completion]:
        """A row of `OLD`."""
        kind, key = (
            ("insert", f"insert-{who}"),
            ("upsert", f"upsert-{who}"),
            ("update", "limbo"),
            ("delete", "limbo"),
        )[number]
        row = [kind, key, {} if kind == "delete" else {"a": who}]
        done = await self.cluster.do(
            client, "write", timeout_s=REFUSED_S, table=OLD, nonce=f"{kind}-{who}", rows=[row]
        )
        if key != "limbo" and done.type is OpType.FAIL:
            self.refused_keys.add(key)
        return kind, done

    async def differences(self, client: Any = None) -> list[str]:
        """What is not as it was acknowledged."""
        client = client or self.cluster.new_client()
        listed = {one[0] for one in (await self.cluster.ok(client, "list"))["tables"]}
        found = [f"{name} is there" for name in sorted(self.absent & listed)]
        for name, columns in self.tables.items():
            got = await self.cluster.ok(client, "get", name=name)
            if got.get("columns") != columns:
                found.append(f"{name}: {got}")
        for table, kept in self.rows.items():
            parts = (await self.cluster.ok(client, "scan", table=table)).get("parts", [])
            there = {key: cells.get("a") for part in parts for key, cells in part["rows"]}
            found += [f"{table}/{k}: {there.get(k)}" for k, v in kept.items() if there.get(k) != v]
            found += [f"{table}/{k} is there" for k in sorted(self.refused_keys & there.keys())]
        return found


def counted(ended: Sequence[tuple[str, Completion]]) -> str:
    """How many succeeded, and how the others ended."""
    others = sorted(
        {f"{f} {d.type.value} {(d.error or '')[:40]}" for f, d in ended if d.type is not OpType.OK}
    )
    ok = sum(done.type is OpType.OK for _, done in ended)
    return f"{ok} of {len(ended)} ok" + (f" ({'; '.join(others)})" if others else "")


def all_succeed(where: str, what: str, ended: Sequence[tuple[str, Completion]]) -> Claim:
    """Every kind was tried, and all are ok."""
    holds = {f for f, _ in ended} == KINDS and all(d.type is OpType.OK for _, d in ended)
    return Claim(where, what, counted(ended), holds)


def none_acknowledged(where: str, what: str, ended: Sequence[tuple[str, Completion]]) -> Claim:
    """Something was tried, and nothing is ok."""
    types = [done.type for _, done in ended]
    found = ", ".join(f"{types.count(t)} {t.value}" for t in (OpType.FAIL, OpType.INFO, OpType.OK))
    return Claim(where, what, found, bool(types) and OpType.OK not in types)
