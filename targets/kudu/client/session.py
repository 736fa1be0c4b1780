"""The parts that all operations of one client share: calls, deadlines, timestamps, retry policy.

Kudu's own client resends every master request until its deadline, mutation or not
(`client/master_proxy_rpc.cc`), which can act twice (KUDU-1537). This client sends a mutation again
only after an answer that proves that the previous attempt did nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

from harness.env import Clock

_NS: Final = 1e9
_LIMIT_S_MIN: Final = 0.001


class ClientTime:
    """The highest timestamp in any answer so far; 0 before the first."""

    def __init__(self) -> None:
        self.timestamp = 0

    def learn(self, *timestamps: int) -> None:
        self.timestamp = max(self.timestamp, *timestamps)


class Deadline:
    """The time by which an operation must end."""

    __slots__ = ("_clock", "_end_ns")

    def __init__(self, clock: Clock, after_s: float) -> None:
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + int(after_s * _NS)

    @property
    def left_s(self) -> float:
        """The remaining time; negative once the deadline has passed."""
        return (self._end_ns - self._clock.monotonic_ns()) / _NS

    def limit_s(self, most_s: float) -> float:
        """The time limit of an attempt: `most_s`, or the remaining time if that is shorter."""
        return max(_LIMIT_S_MIN, min(most_s, self.left_s))

    def within(self, after_s: float) -> Deadline:
        """The earlier of this deadline and one `after_s` from now."""
        sooner = Deadline(self._clock, after_s)
        return sooner if sooner._end_ns < self._end_ns else self

    async def pause(self, pause_s: float) -> None:
        """Sleep for `pause_s`, but not past the deadline."""
        await asyncio.sleep(max(0.0, min(pause_s, self.left_s)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of one operation.

    `resend` also repeats a mutation after an attempt of unknown outcome, with the same request id.
    That is sound only if DDL is exactly-once (profile `strict`): the masters store the first result
    with the batch and answer a repetition with it. An operation with such an attempt is `ok` if a
    later attempt succeeds and `info` otherwise, never `fail`.

    `repeat` sends every second acknowledged mutation once more, with the same id. The answer to the
    last copy counts; under exactly-once it equals the first.

    For `late_percent` of the acknowledged mutations, a copy with the same id is sent up to
    `late_s_max` later, long after the operation ended. This imitates a network that delivers a
    delayed request to another leader, or to a restarted one. The client drops the answer; under
    exactly-once the copy changes nothing. No copy is sent after `late_revisions_max` further
    changes, since a target may forget requests of that age.

    A client that knows only the initial masters could not find a new leader among masters that
    joined since. It therefore asks every `relearn_s`, in passing, who the masters are. Without
    `learns_masters` it uses only the masters of its configuration, like Kudu's client.

    `first_leader_wins` (switch LEADER-PICK) makes the client believe the first master that claims
    to lead.
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
    # below the operation's limit, so that a new leader is tried
    read_attempt_timeout_s: float = 2.0
    backoff_step_s: float = 0.05
    backoff_max_s: float = 0.5

    def backoff_s(self, attempt: int) -> float:
        """The pause after the `attempt`-th consecutive attempt (from 1): linear, as in Kudu."""
        return min(self.backoff_step_s * attempt, self.backoff_max_s)
