"""Election timeouts, and the only timer of a replica.

Every heartbeat postpones a follower's deadline. A new timer for each heartbeat would be costly, so
the deadline is only a number. If the timer fires before the deadline, it is set again for the
remaining time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from harness.env import Env
from targets.kudu.consensus import events as ev
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.flags import Flags

_BACKOFF_EXPONENT_MAX: Final = 20
_FIRST_SHARE_MAX: Final = 0.2
_NS: Final = 1_000_000_000
# Event loops round deadlines. Without slack, a timer could fire many times before its deadline.
_SLACK_NS: Final = 1000
_LEADER: Final = Role.LEADER


class ElectionTimeouts:
    """The timeouts after which a replica that hears no heartbeat runs for leader.

    The timeout is uniform between `min_ns` and a maximum. Each consecutive lost election raises the
    maximum by half, up to `leader_failure_exp_backoff_max_delta_ms`. A drawn timeout stays in use
    until it expires or an election fails.
    """

    def __init__(self, flags: Flags, random: Random) -> None:
        self._random = random
        self._current_ns = 0  # 0: not drawn yet
        self._failed_elections = 0
        periods = flags.leader_failure_max_missed_heartbeat_periods
        self.min_ns = int(flags.raft_heartbeat_interval_ms * 1_000_000 * periods)
        self._limit_ns = flags.leader_failure_exp_backoff_max_delta_ms * 1_000_000

    def max_ns(self, failed_elections: int) -> int:
        """Return the longest timeout, in ns, after `failed_elections` lost elections in a row."""
        exponent = min(failed_elections + 1, _BACKOFF_EXPONENT_MAX)
        return max(self.min_ns, min(int(self.min_ns * 1.5**exponent), self._limit_ns))

    def draw_first_ns(self) -> int:
        """Draw the first timeout, in ns, of a replica that has never known a leader.

        Kudu lets the failure detector of such a replica expire at once (`RaftConsensus::Start`).
        Here the timeout is random, at most a fifth of `min_ns`, so that the replicas of a group do
        not all become candidates at the same time. A short timeout is safe because it starts a
        pre-election, which followers of a live leader refuse.
        """
        return int(self.min_ns * _FIRST_SHARE_MAX * self._random.random())

    def current_ns(self, failed_elections: int) -> int:
        """Return the timeout in ns. A new one is drawn after expiry or a failed election."""
        if not self._current_ns or failed_elections != self._failed_elections:
            spread_ns = self.max_ns(failed_elections) - self.min_ns
            self._current_ns = self.min_ns + int(spread_ns * self._random.random())
            self._failed_elections = failed_elections
        return self._current_ns

    def redraw(self) -> None:
        """Discard the timeout after it has expired; the next `current_ns` draws a new one."""
        self._current_ns = 0


class ReplicaTimer:
    """A timer that fires `HeartbeatDue` on a leader and `ElectionTimeout` on other replicas.

    The timer calls `fired` with the event. If `fired` raises an exception, the timer passes it to
    `failed`: in some environments, an exception in a callback does not end the node.
    """

    def __init__(
        self,
        env: Env,
        flags: Flags,
        election: ElectionTimeouts,
        fired: Callable[[ev.Event], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._clock = env.clock
        self._election = election
        self._heartbeat_ns = flags.raft_heartbeat_interval_ms * 1_000_000
        self._pre_election = flags.raft_enable_pre_election
        self._fired = fired
        self._failed = failed
        self._deadline_ns = 0
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self, core: RaftCore) -> None:
        """Start waiting for an election timeout. In a new group, the first one is shorter."""
        self._core = core
        self._loop = asyncio.get_running_loop()
        if core.is_new and self._pre_election:
            # The first contact with a leader, or the first election, sets the usual timeout.
            self._set_deadline(self._clock.monotonic_ns() + self._election.draw_first_ns())
        else:
            self.reset()

    def reset(self, _: object = None) -> None:
        """Restart the wait for a complete election timeout. This has no effect on a leader."""
        core = self._core
        if core.role is not _LEADER:
            timeout_ns = self._election.current_ns(core.failed_elections)
            self._set_deadline(self._clock.monotonic_ns() + timeout_ns)

    def lead(self) -> None:
        """Set the deadline to one heartbeat interval from now. Call this only on a leader."""
        self._set_deadline(self._clock.monotonic_ns() + self._heartbeat_ns)

    def stop(self) -> None:
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _set_deadline(self, deadline_ns: int) -> None:
        """Set the deadline; replace the event loop's timer only if it would fire too late."""
        earlier = deadline_ns < self._deadline_ns
        self._deadline_ns = deadline_ns
        if self._handle is None:
            self._arm()
        elif earlier:
            self._handle.cancel()
            self._arm()

    def _arm(self) -> None:
        if self._stopped:
            return
        delay_s = max(0, self._deadline_ns - self._clock.monotonic_ns()) / _NS
        self._handle = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._handle = None
        if self._stopped:
            return
        if self._deadline_ns > self._clock.monotonic_ns() + _SLACK_NS:
            self._arm()  # the deadline was postponed after this timer was set
            return
        try:
            self._expire()
        except Exception as error:  # noqa: BLE001  `failed` ends the node
            self._failed(error)

    def _expire(self) -> None:
        core = self._core
        if core.role is not _LEADER:
            self._election.redraw()
            self.reset()
            self._fired(ev.ElectionTimeout())
            return
        due_ns = core.all_sent_ns + self._heartbeat_ns
        if due_ns > self._clock.monotonic_ns():
            self._set_deadline(due_ns)  # the leader's last updates also counted as a heartbeat
            return
        self.lead()
        self._fired(ev.HeartbeatDue())
