"""The parts that all operations of one client share: calls, deadlines, timestamps, retry policy.

Kudu's own client resends every master request until its deadline, mutation or not
(`client/master_proxy_rpc.cc`), which can act twice (KUDU-1537). Ours sends a mutation again only
after an answer which proves that the attempt before did nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final, Protocol

from harness.env import Clock
from targets.kudu.rpc import Call, R_co

_NS: Final = 1e9
_LIMIT_S_MIN: Final = 0.001


class Caller(Protocol):
    """The part of the RPC client that operations need, so that tests can script it."""

    async def call(self, address: str, request: Call[R_co], *, timeout_s: float) -> R_co:
        """The answer. Raises `RpcError`, whose `sent` is false when nothing was processed."""
        ...

    def close(self) -> None: ...


class ClientTime:
    """The highest timestamp in any answer so far; 0 before the first."""

    def __init__(self) -> None:
        self.timestamp = 0

    def learn(self, *timestamps: int) -> None:
        self.timestamp = max(self.timestamp, *timestamps)


class Deadline:
    """The moment at which an operation must have ended."""

    __slots__ = ("_clock", "_end_ns")

    def __init__(self, clock: Clock, after_s: float) -> None:
        """Start counting now."""
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + int(after_s * _NS)

    @property
    def left_s(self) -> float:
        """The time left; below 0 once the deadline has passed."""
        return (self._end_ns - self._clock.monotonic_ns()) / _NS

    def limit_s(self, most_s: float) -> float:
        """The time limit of an attempt that may take `most_s`, and end no later than this."""
        return max(_LIMIT_S_MIN, min(most_s, self.left_s))

    def within(self, after_s: float) -> Deadline:
        """The sooner of this deadline and one `after_s` from now."""
        sooner = Deadline(self._clock, after_s)
        return sooner if sooner._end_ns < self._end_ns else self

    async def pause(self, pause_s: float) -> None:
        """Sleep for `pause_s`, but not past the deadline."""
        await asyncio.sleep(max(0.0, min(pause_s, self.left_s)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of one operation.

    `resend` also repeats a mutation after an attempt of unknown outcome, with the same request id.
    That is sound only where DDL is exactly-once (profile `strict`): the first result is kept with
    the batch, and a repetition gets it again. An operation with such an attempt is then `ok` if a
    later one succeeds and `info` otherwise, never `fail`.

    `repeat` sends every second acknowledged mutation once more, with the same id. The answer to
    the last copy counts: exactly-once says it is the same.

    For `late_percent` of the acknowledged mutations a copy with the same id is sent up to
    `late_s_max` later, when the operation is long over: a network that kept it may deliver it to
    another leader, or to one that has restarted. The client drops the answer; exactly-once says
    that the copy changes nothing. No copy is sent after `late_revisions_max` further changes, since
    a target may forget requests of that age.

    A client that knows only the initial masters, and found a leader among them, would be lost with
    that leader if others joined since: every `relearn_s` it asks in passing who the masters are.
    Without `learns_masters` it keeps to the masters of its configuration, as Kudu's client does.

    `first_leader_wins` is switch LEADER-PICK: believe the first master that claims to lead.
    """

    resend: bool = False
    repeat: bool = False
    late_percent: int = 0
    late_s_max: float = 12.0
    late_revisions_max: int = 2000
    attempts_max: int = 50
    relearn_s: float | None = None
    learns_masters: bool = True
    first_leader_wins: bool = False
    mutation_attempt_timeout_s: float = 10.0  # Kudu's limit of a single RPC
    read_attempt_timeout_s: float = 2.0  # below the operation's, so that a new leader is tried
    backoff_step_s: float = 0.05
    backoff_max_s: float = 0.5

    def backoff_s(self, attempt: int) -> float:
        """The pause after the `attempt`-th attempt in a row (from 1): linear, as in Kudu."""
        return min(self.backoff_step_s * attempt, self.backoff_max_s)
