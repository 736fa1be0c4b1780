"""Deadlines, timestamps and the retry policy, which all operations of one client share.

Kudu's own client resends every master request until its deadline, even a mutation
(`client/master_proxy_rpc.cc`), so a mutation can take effect twice (KUDU-1537). This client sends a
mutation again only after an answer that proves that the previous attempt did nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

from harness.env import Clock

_NS: Final = 1e9
_LIMIT_S_MIN: Final = 0.001


class ClientTime:
    """The highest timestamp that one client has received; 0 before the first answer."""

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
        """The remaining time in seconds; negative once the deadline has passed."""
        return (self._end_ns - self._clock.monotonic_ns()) / _NS

    def limit_s(self, most_s: float) -> float:
        """Return the time limit of an attempt: the smaller of `most_s` and the remaining time."""
        return max(_LIMIT_S_MIN, min(most_s, self.left_s))

    def within(self, after_s: float) -> Deadline:
        """Return the earlier of two deadlines: this one, or `after_s` from now."""
        sooner = Deadline(self._clock, after_s)
        return sooner if sooner._end_ns < self._end_ns else self

    async def pause(self, pause_s: float) -> None:
        """Sleep for `pause_s`, but not past the deadline."""
        await asyncio.sleep(max(0.0, min(pause_s, self.left_s)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Rules by which a client repeats requests, and the time limits of attempts.

    `resend`: after an attempt of unknown outcome, the client sends the mutation again with the same
    request id. The operation is `ok` if a later attempt succeeds, and otherwise `info`, never
    `fail`. This is sound only if the target executes DDL exactly once (profile `strict`): masters
    then store the first result with the change, and answer a copy of the request with that result.

    `repeat`: the client sends every second acknowledged mutation once more, with the same id. The
    last answer counts. If DDL is exactly-once, both answers are equal.

    `late_percent`: for this share of the acknowledged mutations, the client sends a copy up to
    `late_s_max` later, long after the operation ended, and drops the answer. This imitates a
    network that delivers a delayed request to another or a restarted leader. If DDL is
    exactly-once, the copy changes nothing. After `late_revisions_max` further changes, no copy is
    sent, since a target may forget requests of that age.

    `relearn_s`: at this interval, the client asks in the background for the current masters, so
    that it finds a leader that joined later.

    `learns_masters`: if false, the client uses only the masters of its configuration, like Kudu's
    client.

    `first_leader_wins`: the client believes the first master that claims to lead (LEADER-PICK).
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
    # Less than the time limit of an operation, so that a read has time to try a new leader.
    read_attempt_timeout_s: float = 2.0
    backoff_step_s: float = 0.05
    backoff_max_s: float = 0.5

    def backoff_s(self, attempt: int) -> float:
        """Return the pause after this number of attempts. Pauses grow linearly, as in Kudu."""
        return min(self.backoff_step_s * attempt, self.backoff_max_s)
