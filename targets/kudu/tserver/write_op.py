"""Writes to one tablet, on its leader.

The leader checks a request against the schema and the partition, appends it to the log with a
timestamp, and answers once it has applied the write. A copy of a request that is still running
waits for the first copy. A later copy gets the first answer from the state machine, even on another
leader (`result_tracker.py`).
"""

from __future__ import annotations

from typing import Final

from targets.kudu import messages as m
from targets.kudu.consensus.applier import Waiter
from targets.kudu.consensus.errors import (
    IndeterminateError,
    NotLeaderError,
    OverloadedError,
    RaftError,
)
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.flags import Flags
from targets.kudu.hybrid_clock import ClockError, HybridClock
from targets.kudu.partitions import encode_key, fits, owns, partition_key
from targets.kudu.tserver.errors import (
    WRITES_WAITING_BYTES_MAX,
    WRITES_WAITING_MAX,
    TabletRefusedError,
)
from targets.kudu.tserver.result_tracker import WriteResult
from targets.kudu.tserver.tablet import TabletMachine, WriteOp

ROWS_MAX: Final = 10_000
PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size in bytes of a write's log entry. (Kudu limits the message and the batch.)"""

_Code = m.TabletErrorCode
_CODES: Final[dict[type[RaftError], m.TabletErrorCode]] = {
    NotLeaderError: _Code.NOT_THE_LEADER,
    OverloadedError: _Code.THROTTLED,
}


class Writes:
    """Handles the write requests to one replica, which must lead its tablet."""

    def __init__(
        self,
        *,
        replica: Replica,
        machine: TabletMachine,
        clock: HybridClock,
        flags: Flags,
        partition: m.Partition,
        partition_schema: m.PartitionSchema | None,
    ) -> None:
        self._replica = replica
        self._machine = machine
        self._clock = clock
        self._timeout_s = flags.master_ts_rpc_timeout_ms / 1000
        self._partition = partition
        self._partition_schema = partition_schema
        self._under_way: dict[tuple[str, int], Waiter] = {}
        self._waiting_bytes = 0

    @property
    def waiting_count(self) -> int:
        return len(self._under_way)

    async def write(self, request: m.WriteRequest) -> m.WriteResponse:
        name = request.request_id
        key = (name.client_id, name.seq_no)
        first = self._under_way.get(key)
        if first is not None:
            outcome: m.WriteResponse = await first.wait(None)
            return outcome
        if self._replica.role != "LEADER":
            raise TabletRefusedError(
                _Code.NOT_THE_LEADER,
                f"the replica of {request.tablet_id} is not leader of this config",
            )
        earlier = self._machine.results.find(*key)
        if earlier is not None:
            return self._answer(earlier)
        self._check(request)
        payload = TabletMachine.encode(
            WriteOp(
                self._clock.now(),
                name.client_id,
                name.seq_no,
                name.first_incomplete_seq_no,
                request.operations,
                self._foreign(request),
            )
        )
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise TabletRefusedError(
                _Code.UNKNOWN_ERROR,
                f"the write takes {len(payload)} bytes; the limit is {PAYLOAD_BYTES_MAX}: "
                "send fewer rows at once",
            )
        self._under_way[key] = waiter = Waiter()
        self._waiting_bytes += len(payload)
        lost = m.TabletError(
            _Code.UNKNOWN_ERROR, "the server gave up the write", indeterminate=True
        )
        answer = m.WriteResponse(lost)
        try:
            answer = await self._replicate(payload)
        except TabletRefusedError as refusal:  # copies of the request that wait get the same answer
            answer = m.WriteResponse(refusal.error)
        finally:
            self._waiting_bytes -= len(payload)
            del self._under_way[key]
            waiter.finish(answer)
        return answer

    async def _replicate(self, payload: bytes) -> m.WriteResponse:
        try:
            _, _, outcome = await self._replica.replicate(payload, timeout_s=self._timeout_s)
        except RaftError as error:
            code = _CODES.get(type(error), _Code.UNKNOWN_ERROR)
            lost = isinstance(error, IndeterminateError)
            raise TabletRefusedError(code, str(error), indeterminate=lost) from error
        result: WriteResult | None = outcome.result
        if result is None:
            raise _stale()
        return self._answer(result)

    def _answer(self, result: WriteResult) -> m.WriteResponse:
        return m.WriteResponse(
            timestamp=result.timestamp,
            row_errors=result.errors,
            propagated_timestamp=self._machine.last_timestamp,
            index=result.index,
            term=result.term,
        )

    @property
    def _is_full(self) -> bool:
        too_many = len(self._under_way) >= WRITES_WAITING_MAX
        return too_many or self._waiting_bytes >= WRITES_WAITING_BYTES_MAX

    # --- checks -----------------------------------------------------------------------------

    def _check(self, request: m.WriteRequest) -> None:
        name, results = request.request_id, self._machine.results
        if results.is_stale(name.client_id, name.seq_no):
            raise _stale()
        if results.is_full and not results.makes_room(self._clock.now()):
            raise TabletRefusedError(
                _Code.THROTTLED,
                f"the tablet remembers the results of {results.count} writes, and must forget old "
                "results first (flag remember_responses_ttl_ms)",
            )
        if self._is_full:
            raise TabletRefusedError(
                _Code.THROTTLED,
                f"{len(self._under_way)} writes ({self._waiting_bytes} bytes) wait already",
            )
        if not 0 < len(request.operations) <= ROWS_MAX:
            raise TabletRefusedError(
                _Code.UNKNOWN_ERROR,
                f"the write has {len(request.operations)} rows; it must have 1 to {ROWS_MAX}",
            )
        problem = next(filter(None, map(self._problem, request.operations)), None)
        if problem is not None:
            raise TabletRefusedError(_Code.MISMATCHED_SCHEMA, problem)
        try:
            self._clock.update(request.propagated_timestamp)
        except ClockError as error:
            raise TabletRefusedError(_Code.CLOCK_TOO_FAR_AHEAD, str(error)) from error

    def _problem(self, row: m.RowOperation) -> str | None:
        try:
            encode_key(self._machine.key, row.key)
        except ValueError as error:
            return str(error)
        for column_id, value in row.values.items():
            column = self._machine.values.get(column_id)
            if column is None:
                version = self._machine.schema_version
                return f"there is no column {column_id} to write in version {version} of the schema"
            if value is not None and not fits(value, column.type):
                return (
                    f"the value {value!r} does not fit the column {column.name!r} of type "
                    f"{column.type}"
                )
        return None

    def _foreign(self, request: m.WriteRequest) -> tuple[int, ...]:
        schema, key = self._partition_schema, self._machine.key
        if schema is None:
            return ()
        return tuple(
            position
            for position, row in enumerate(request.operations)
            if not owns(self._partition, partition_key(schema, key, row.key))
        )


def _stale() -> TabletRefusedError:
    return TabletRefusedError(
        _Code.REQUEST_STALE,
        "the result of this write was removed, so it is unknown whether the write was applied",
        indeterminate=True,
    )
