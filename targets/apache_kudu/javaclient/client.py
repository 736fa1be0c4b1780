"""Client processes whose operations are carried out by Kudu's own Java client.

All clients of a run share one program (`program`), which has one Java client per process. Before
and after each operation, the harness queries the servers by its own RPCs (*looks*), because the
Java client reports neither terms nor versions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness.env import ClientEnv
from harness.errors import UsageError, clipped
from harness.ops import Attempt, OpType
from harness.plugins import Client, Completion, Convergence, Request
from harness.vocabularies import ddl, rows
from targets.apache_kudu.javaclient import catalog, rowset
from targets.apache_kudu.javaclient.attempts import OK, OPEN, Sent, read_frames, recorded
from targets.apache_kudu.javaclient.catalog import NO_TERM, Judged, Looks
from targets.apache_kudu.javaclient.program import JavaProgram, Reply
from targets.apache_kudu.wire.looks import Leads, Looker
from targets.apache_kudu.wire.tables import Version
from targets.kudu.client.session import Deadline

_PREFIX: Final = "master-"
"""In the Java client, a master's name is this prefix and the master's advertised address."""
_LED_S: Final = 1.5
_LED_ASKED: Final = 10
"""The number of times that a master is asked for a new table's tablets within `_LED_S`."""
_LOOKS_S: Final = 0.5
"""The part of an operation's time that is reserved for the looks after it."""
_ERROR_MAX: Final = 500
_FIRST_NUMBER: Final = 0
_FIRST_S: Final = 20.0
"""Time limit of the first operation, during which the program loads the client's classes."""
_UNKNOWN_MASTERS: Final = "NO_MASTERS: not every master has named the address at which it serves"


class JavaClients:
    """The clients of one run, which share the Java program and the queries to servers."""

    def __init__(
        self,
        env: ClientEnv,
        program: JavaProgram,
        names: Mapping[str, str],
        *,
        masters: Iterable[str],
        tservers: Iterable[str],
        uuids: Mapping[str, str] | None = None,
    ) -> None:
        """Let all clients run in `program`. `names` maps uuids to addresses of servers.

        Addresses have the form "node:port". With `uuids`, histories show located replicas by uuid.
        """
        self.env = env
        self.program = program
        self.names = names
        self.uuids = uuids
        self.masters = tuple(masters)
        self.tservers = tuple(tservers)
        self.advertised: dict[str, str] = {}
        """Maps each master's advertised address, which the Java client uses, to its own address."""
        self.looker = Looker(env, names)
        self.leads = Leads(self.looker, env.clock)
        self.numbers = itertools.count(_FIRST_NUMBER + 1)
        self._is_watching = False
        self._is_ready = False
        self._led: set[str] = set()
        """Tables of which all tablets have had a leader."""

    def client(self, process: int) -> JavaClient:
        """Return a new client for one process."""
        del process
        return JavaClient(self)

    async def ready(self, servers: Convergence) -> Convergence:
        """Return `servers`, or whether the program is ready once the servers are."""
        if not servers.ok or self._is_ready:
            return servers
        pending = await self.pending()
        self._is_ready = not pending
        return Convergence(ok=not pending, pending=pending)

    async def pending(self) -> tuple[str, ...]:
        """Start the program early, because this is slow. Return the conditions that do not hold.

        Raises `UsageError` if the program cannot run.
        """
        if not await self.learn():
            return (_UNKNOWN_MASTERS,)
        asked = {"f": "list", "timeout_ms": int(_FIRST_S * 1000)}
        reply = await self.program.ask(
            tuple(self.advertised), _FIRST_NUMBER, asked, timeout_s=_FIRST_S
        )
        await self.program.close(_FIRST_NUMBER)
        return (
            () if reply.answer is not None else ("Kudu's Java client cannot list the tables yet",)
        )

    async def learn(self) -> bool:
        """Ask the masters for their addresses; return whether all of them are known.

        The first call also starts to watch which servers lead.
        """
        if not self._is_watching:
            self._is_watching = True
            for address in (*self.masters, *self.tservers):
                self.env.spawn(self.leads.watch(address), name=f"who leads at {address}")
        await self.looker.learn_advertised(self.masters, self.advertised)
        return len(self.advertised) == len(self.masters)

    async def wait_led(self, table: str) -> None:
        """Before the first operation on a table's rows, wait until its tablets have leaders.

        Otherwise the term of the operation would be uncertain. The wait takes at most `_LED_S`.
        While no master leads, there is no wait.
        """
        if table in self._led or self.leads.leader() is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LED_S):
                tablets = await self._tablets(table)
                for _ in range(_LED_ASKED):
                    if tablets:
                        break
                    await asyncio.sleep(_LED_S / _LED_ASKED)  # some tablets do not run yet
                    tablets = await self._tablets(table)
                await self.leads.wait_led(tablets)
                self._led.add(table)

    async def _tablets(self, table: str) -> list[str]:
        master = self.leads.leader()
        return [] if master is None else await self.looker.tablets(master, table)

    def core_of(self, core: Sequence[str], masters: Mapping[str, str]) -> list[str]:
        """Return the nodes of `core`. If it lacks the leading master, swap a master for the leader.

        The Java client uses the first master that claims to lead. If a deposed leader is cut off
        from the core but not from the clients, they would never find the core's leader.
        """
        led = [name for name, address in masters.items() if address == self.leads.leader()]
        replaced = [name for name in masters if name in core][: len(led)]
        if not led or led[0] in core:
            return list(core)
        return [*led, *(name for name in core if name not in replaced)]

    def address_of(self, server: str) -> str:
        """Return the address "node:port" of a server, from the Java client's name for it."""
        host_port = server.removeprefix(_PREFIX)
        return self.advertised.get(host_port) or self.names.get(server, server)


class JavaClient(Client):
    """The client of one process."""

    def __init__(self, shared: JavaClients) -> None:
        self._shared = shared
        self._number = next(shared.numbers)
        """The client's number in the program. One process may use several clients in turn."""
        self._clock = shared.env.clock
        self._looker = shared.looker
        self._leads = shared.leads

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Run one operation. Raises `UsageError` for operations outside `ddl` and `rows`."""
        deadline = Deadline(self._clock, timeout_s)
        on_rows = request.f in rows.ROW_CALLS.by_name
        if not on_rows and request.f not in ddl.BY_NAME:
            raise UsageError(f"the Java client has no operation {request.f!r}")
        if not await self._shared.learn():
            return Completion(OpType.FAIL, None, _UNKNOWN_MASTERS)
        if on_rows:
            return await self._on_rows(rows.ROW_CALLS.call_of(request.f, request.value), deadline)
        return await self._on_catalog(ddl.call_of(request.f, request.value), deadline)

    async def close(self) -> None:
        await self._shared.program.close(self._number)

    async def _ask(self, line: Mapping[str, object], deadline: Deadline) -> Reply:
        limit_s = max(0.1, deadline.left_s - _LOOKS_S)
        asked = {**line, "timeout_ms": int(limit_s * 1000)}
        masters = tuple(self._shared.advertised)
        number = self._number
        # The program applies the time limit. Its answer may take some more time to arrive.
        reply = await self._shared.program.ask(
            masters, number, asked, timeout_s=limit_s + _LOOKS_S / 2
        )
        if reply.error is not None and reply.error[0] == OPEN:
            # The operation is still running. A new client separates its RPCs from the next
            # operation's.
            self._number = next(self._shared.numbers)
            self._shared.env.spawn(self._shared.program.close(number), name="close-java-client")
        return reply

    def _recorded(self, sent: Iterable[Sent], start_ns: int) -> tuple[Attempt, ...]:
        return recorded(list(sent), self._shared.address_of, start_ns, self._clock.monotonic_ns())

    # --- the catalog -------------------------------------------------------------------------

    async def _on_catalog(self, call: ddl.DdlCall, deadline: Deadline) -> Completion:
        master, before = self._leads.leader(), None
        if call.f in catalog.VERSIONED and master is not None:
            before = await self._looker.version(master, name=getattr(call, "name", None))
        start_ns = self._clock.monotonic_ns()
        reply = await self._ask(catalog.line_of(call), deadline)
        if isinstance(call, ddl.Locate) and self._shared.uuids is not None:
            reply = catalog.with_uuids(reply, self._shared.uuids)
        sent, truncated = read_frames(reply.frames)
        attempts = self._recorded(
            (e for e in sent if e.method == catalog.METHODS[call.f]), start_ns
        )
        answered = catalog.answering(call.f, sent)
        if answered is None:
            return _completion(
                catalog.judge(call, reply, sent, Looks(), truncated=truncated), None, attempts
            )
        address = self._shared.address_of(answered.server)
        sent_ns = start_ns + answered.start_ns
        looks = await self._looks(reply, address, sent_ns, before if address == master else None)
        judged = catalog.judge(call, reply, sent, looks, truncated=truncated)
        return _completion(judged, address, attempts)

    async def _looks(
        self, reply: Reply, address: str, sent_ns: int, before: Version | None
    ) -> Looks:
        after = None
        if before is not None and reply.answer is not None:
            after = await self._looker.version(address, table_id=reply.answer.get("table_id"))
        lead = await self._leads.proven(address, sent_ns)
        return Looks(None if lead is None else lead.term, before, after)

    # --- rows --------------------------------------------------------------------------------

    async def _on_rows(
        self, call: rows.Write | rows.Read | rows.Scan, deadline: Deadline
    ) -> Completion:
        await self._shared.wait_led(call.table)
        start_ns = self._clock.monotonic_ns()
        reply = await self._ask(rowset.line_of(call), deadline)
        sent, truncated = read_frames(reply.frames)
        method = rowset.WRITE if isinstance(call, rows.Write) else rowset.SCAN
        attempts = self._recorded((each for each in sent if each.method == method), start_ns)
        if reply.answer is None:
            return _completion(rowset.unanswered(call, reply), None, attempts)
        servers = _servers(call, reply, sent)
        addresses = {tablet: self._shared.address_of(uuid) for tablet, uuid in servers.items()}
        sent_ns = {t: start_ns + ns for t, ns in _first_sent(sent, method, servers).items()}
        nodes = {tablet: address.partition(":")[0] for tablet, address in addresses.items()}
        terms = await self._terms(call, addresses, sent_ns)
        last = next(reversed(addresses.values()), None)
        if isinstance(call, rows.Write):
            judged = rowset.written(reply.answer, sent, nodes, terms, truncated=truncated)
        elif len(terms) == len(addresses) or not rowset.needs_proof(call):
            judged = rowset.scanned(call, reply.answer, nodes, terms)
        else:
            judged = Judged(OpType.FAIL, None, f"{NO_TERM}, or a majority does not confirm it")
        return _completion(judged, last, attempts)

    async def _terms(
        self,
        call: rows.Write | rows.Read | rows.Scan,
        addresses: Mapping[str, str],
        sent_ns: Mapping[str, int],
    ) -> dict[str, int]:
        async def term(tablet: str, address: str) -> int | None:
            lead = await self._leads.proven(address, sent_ns[tablet], tablet)
            if lead is None:
                return None
            if isinstance(call, rows.Write) or rowset.needs_leader(call):
                return lead.term if lead.leads else None
            if not rowset.needs_proof(call) or await self._looker.confirmed(address, tablet, lead):
                return lead.term
            return None

        terms = await asyncio.gather(*(term(*each) for each in addresses.items()))
        return {
            tablet: number
            for tablet, number in zip(addresses, terms, strict=True)
            if number is not None
        }


def _servers(
    call: rows.Write | rows.Read | rows.Scan, reply: Reply, sent: Iterable[Sent]
) -> dict[str, str]:
    if isinstance(call, rows.Write):
        return {
            each.tablet: each.server
            for each in sent
            if each.method == rowset.WRITE and each.code == OK and each.tablet is not None
        }
    assert reply.answer is not None, "the caller has looked"
    return {part["tablet"]: part["server"] for part in reply.answer["parts"]}


def _first_sent(sent: Sequence[Sent], method: str, servers: Mapping[str, str]) -> dict[str, int]:
    return {
        tablet: min(
            (
                each.start_ns
                for each in sent
                if (each.method, each.server, each.tablet) == (method, server, tablet)
            ),
            default=0,
        )
        for tablet, server in servers.items()
    }


def _completion(judged: Judged, address: str | None, attempts: tuple[Attempt, ...]) -> Completion:
    node = None if address is None else address.partition(":")[0]
    error = None if judged.error is None else clipped(judged.error, _ERROR_MAX)
    return Completion(judged.type, judged.value, error, node, attempts)
