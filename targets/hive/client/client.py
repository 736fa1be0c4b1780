"""A client process that behaves like Hive's `RetryingMetaStoreClient` over `HiveMetaStoreClient`.

* A client keeps one connection as long as it works. To connect, the client tries the metastores on
  its list from the beginning, in a few rounds.
* If an answer is lost, or is a MetaException about the database or the transport, the client
  retries the call after a delay, over a new connection. It even retries changes, although they are
  not idempotent. Every try is an attempt in the history.
* A connection that is older than its lifetime is replaced before the next call.
* If metastores can join and leave, an operation with several attempts records two lists: `uris` has
  the metastores on the client's list, and `listed` has the metastores that were configured both
  when the operation began and when it ended.

`classify` decides what an outcome proves. At its deadline, an operation ends as `info` if the
client sent a request that may have changed something, and as `fail` otherwise.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import hms, hms_tokens
from targets.hive import api
from targets.hive.bugs import Bug
from targets.hive.channel import ChannelError
from targets.hive.client.calls import ClientCall, call_of, event_row, plan, read_answer
from targets.hive.client.classify import Proof, proof_of, result_of, retries
from targets.hive.client.connection import Connect, Connection, Door
from targets.hive.client.settings import ClientSettings
from targets.hive.client.uris import Uris

MUTATING: Final = (
    api.CreateTable,
    api.AlterTable,
    api.DropTable,
    api.GetDelegationToken,
    api.RenewDelegationToken,
    api.CancelDelegationToken,
)


Listed = Callable[[], Sequence[Address]]


class NoMetastoreError(Exception):
    """No metastore accepted a connection in any round."""


@dataclasses.dataclass(slots=True)
class Operation:
    """The state of a running operation."""

    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    maybe_done: bool = False  # whether an attempt may have changed something
    node: str | None = None
    error: str = "NO_METASTORE: none accepted a connection"
    uris: list[str] = dataclasses.field(default_factory=list)  # the metastores on the client's list
    listed: tuple[Address, ...] = ()  # the metastores that were configured when the operation began


class MetastoreClient:
    """A client process that sends one operation at a time (`harness.plugins.Client`)."""

    def __init__(
        self,
        env: Env,
        metastores: Sequence[Address],
        settings: ClientSettings,
        *,
        process: int,
        bugs: frozenset[Bug],
        connect: Connect | None = None,
        listed: Listed | None = None,
    ) -> None:
        """Create a client of `metastores`, which are in the deployment's order.

        `connect` opens connections; by default, these are to the bundled metastores. If metastores
        can join and leave, `listed` returns the metastores that are configured now.
        """
        self._env = env
        self._connect: Connect = connect or Door(env)
        self._settings = settings
        self._bugs = bugs
        self._listed = listed
        self._uris = Uris(
            metastores,
            settings.selection,
            env.random,
            remembers=Bug.FAILBACK_FLAP not in bugs,
        )
        self._client_id = f"{env.random.getrandbits(64):016x}-p{process}"
        self._count = 0
        self._channel: Connection | None = None
        self._address: Address | None = None
        self._opened_ns = 0
        self._was_opened = False
        self._position: int | None = None  # id of the last event that a poll returned

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Perform one operation. Raises `UsageError` if no vocabulary has this operation."""
        call = call_of(request.f, request.value)

        async def do(operation: Operation) -> dict[str, Any]:
            if isinstance(call, hms.Poll):
                return await self._poll(operation)
            if isinstance(call, hms_tokens.Verify):
                return read_answer(call, await self._verify(operation, call))
            planned = plan(call, self.new_request_id())
            return read_answer(call, await self.call(operation, planned))

        return await self.perform(call, do, timeout_s=timeout_s)

    async def perform(
        self,
        call: ClientCall,
        do: Callable[[Operation], Awaitable[dict[str, Any]]],
        *,
        timeout_s: float,
    ) -> Completion:
        """Run `do` for the operation `call`, at most until the deadline; classify the outcome."""
        operation = Operation(listed=self._now_listed())
        try:
            async with asyncio.timeout(timeout_s):
                value = await do(operation)
        except api.MetastoreError as error:
            return self._refused(call, operation, error)
        except (NoMetastoreError, ChannelError, TimeoutError) as error:
            if isinstance(error, NoMetastoreError) and self._is_forsaken():
                operation.error = (
                    f"{error}, but none of them is configured any more; {operation.error}"
                )
            kind = OpType.INFO if call.mutates and operation.maybe_done else OpType.FAIL
            return self._end(operation, kind, None, operation.error)
        return self._end(operation, OpType.OK, value, None)

    def new_request_id(self) -> str:
        """Return a request id that is unique to one change."""
        self._count += 1
        return f"{self._client_id}-{self._count}"

    async def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # --- endings -----------------------------------------------------------------------------

    def _refused(
        self, call: ClientCall, operation: Operation, error: api.MetastoreError
    ) -> Completion:
        value = {"result": result_of(error)}
        if not call.mutates:
            absent = (
                isinstance(call, hms.Get)
                and error.kind == api.NO_SUCH_OBJECT
                and proof_of(error) is Proof.NOTHING
            )
            refused = isinstance(call, hms_tokens.Verify) and error.kind == api.INVALID_TOKEN
            if absent or refused:
                return self._end(operation, OpType.OK, value, None)
            return self._end(operation, OpType.FAIL, None, operation.error)
        if operation.maybe_done and not self._is_final(call):
            return self._end(operation, OpType.INFO, None, operation.error)
        if proof_of(error) is Proof.UNKNOWN:
            return self._end(operation, OpType.INFO, None, operation.error)
        return self._end(operation, OpType.FAIL, value, operation.error)

    def _is_final(self, call: ClientCall) -> bool:
        """Whether a refusal also proves that the operation's earlier attempts had no effect."""
        if isinstance(call, hms_tokens.TokenCall):
            return False
        if Bug.HIVE_25144 in self._bugs and isinstance(call, hms.Create):
            return True
        return not {Bug.NO_REQUEST_IDS, Bug.HIVE_25144} & self._bugs

    def _end(self, operation: Operation, kind: OpType, value: Any, error: str | None) -> Completion:
        if self._listed is not None and len(operation.attempts) > 1:
            now = self._now_listed()
            both = [address.node for address in operation.listed if address in now]
            listed = [node for node in operation.uris if node in both]
            value = {**(value or {}), "uris": operation.uris, "listed": listed}
        return Completion(kind, value, error, operation.node, tuple(operation.attempts))

    def _now_listed(self) -> tuple[Address, ...]:
        return self._uris.given if self._listed is None else tuple(self._listed())

    def _is_forsaken(self) -> bool:
        return not {*self._uris.given} & {*self._now_listed()}

    def _note_uris(self, operation: Operation, uris: Sequence[Address]) -> None:
        names = [address.node for address in uris]
        operation.uris += [name for name in names if name not in operation.uris]

    # --- calls -------------------------------------------------------------------------------

    async def _verify(self, operation: Operation, call: hms_tokens.Verify) -> Any:
        """Verify a token at the first metastore that answers, beginning with `call.metastore`.

        Another process would use the token in reality, so this method makes its own connections.
        """
        metastores = self._now_listed()
        self._note_uris(operation, metastores)
        first = call.metastore % len(metastores)
        last: ChannelError | None = None
        for address in (*metastores[first:], *metastores[:first]):
            try:
                channel = await self._try_open(operation, address)
            except ChannelError as error:
                last = error
                continue
            try:
                return await self._attempt(operation, channel, address, plan(call, ""))
            except ChannelError as error:
                last = error
            finally:
                channel.close()
        assert last is not None, "there is a metastore"
        raise last

    async def _poll(self, operation: Operation) -> dict[str, Any]:
        """Read the next events of the log, or report the gap if old events have been removed."""
        if self._position is None:
            self._position = int(await self.call(operation, api.GetCurrentEventId()))
        after = self._position
        result = await self.call(operation, api.GetNextEvents(after, hms.POLL_MAX))
        events = msgspec.convert(result, list[api.Event])
        idents = [after, *(event.ident for event in events)]
        missing = [ident + 1 for ident, later in itertools.pairwise(idents) if later > ident + 1]
        if missing and Bug.HIVE_19219 not in self._bugs:
            to = self._position = int(await self.call(operation, api.GetCurrentEventId()))
            answer = {"result": "ok", "after": after, "events": []}
            return {**answer, "missing": missing[0], "to": to}
        if events:
            self._position = events[-1].ident
        return {"result": "ok", "after": after, "events": [event_row(event) for event in events]}

    async def call(self, operation: Operation, call: api.ApiCall) -> Any:
        """Make a call, retry it as often as the settings allow, and return its answer.

        Raises `MetastoreError` if a metastore answers with an exception, `ChannelError` if the last
        attempt gets no answer, and `NoMetastoreError` if no connection opens.
        """
        made = 0
        while True:
            try:
                channel = await self._connected(operation, again=made > 0)
                assert self._address is not None, "there is a connection"
                return await self._attempt(operation, channel, self._address, call)
            except api.MetastoreError as error:
                if not retries(error) or made >= self._settings.retries:
                    raise
            except ChannelError:
                if made >= self._settings.retries:
                    self._avoid()
                    raise
            made += 1
            self._avoid()
            await asyncio.sleep(self._settings.retry_delay_s)

    def _avoid(self) -> None:
        if self._address is not None:
            self._uris.lost(self._address, self._env.clock.monotonic_ns())

    async def _attempt(
        self, operation: Operation, channel: Connection, address: Address, call: api.ApiCall
    ) -> Any:
        node, start_ns = address.node, self._env.clock.monotonic_ns()
        operation.node, outcome = node, "TIMED_OUT: the operation's deadline passed"
        changes = isinstance(call, MUTATING)
        before, operation.maybe_done = operation.maybe_done, operation.maybe_done or changes
        try:
            reply = await channel.call(call, timeout_s=self._settings.socket_s)
            if reply.error:
                error = api.MetastoreError(reply.error, reply.message)
                outcome = str(error)
                if proof_of(error) is Proof.NOTHING:
                    operation.maybe_done = before
                raise error
            outcome = "ok"
        except ChannelError as lost:
            outcome = f"TTransportException: {lost}"
            raise
        else:
            return reply.result
        finally:
            self._record(operation, node, start_ns, outcome)

    def _record(self, operation: Operation, node: str, start_ns: int, outcome: str) -> None:
        end_ns = self._env.clock.monotonic_ns()
        operation.attempts.append(Attempt(node, start_ns, end_ns, outcome))
        operation.error = outcome

    # --- connections -------------------------------------------------------------------------

    async def _connected(self, operation: Operation, *, again: bool) -> Connection:
        self._note_uris(operation, self._uris.given)
        channel = self._channel
        if channel is not None and not (again or channel.broken or self._is_old()):
            return channel
        await self.close()
        if self._was_opened:
            if self._settings.rereads:
                self._uris.reread(self._now_listed())
                self._note_uris(operation, self._uris.given)
            self._uris.promote()
        self._was_opened = True
        return await self._open(operation)

    def _is_old(self) -> bool:
        age_ns = self._env.clock.monotonic_ns() - self._opened_ns
        return 0 < self._settings.lifetime_s * 1e9 <= age_ns

    async def _open(self, operation: Operation) -> Connection:
        for number in range(self._settings.connect_rounds):
            if number:
                await asyncio.sleep(self._settings.connect_delay_s)
            for address in self._uris.in_order(self._env.clock.monotonic_ns()):
                try:
                    channel = await self._try_open(operation, address)
                except ChannelError:
                    continue
                self._channel, self._address = channel, address
                self._opened_ns = self._env.clock.monotonic_ns()
                return channel
        names = ", ".join(address.node for address in self._uris.given)
        raise NoMetastoreError(f"NO_METASTORE: this client knows only {names}")

    async def _try_open(self, operation: Operation, address: Address) -> Connection:
        start_ns = self._env.clock.monotonic_ns()
        outcome = "TIMED_OUT: the operation's deadline passed"
        try:
            channel = await self._connect(address, timeout_s=self._settings.connect_s)
            outcome = ""
        except ChannelError as error:
            outcome = str(error)
            raise
        finally:
            if outcome:
                refused = f"{hms.NOT_SENT}: {outcome}"
                self._record(operation, address.node, start_ns, refused)
        return channel
