"""Finds the leading master by `ConnectToMaster` calls to all masters at once.

Kudu's client believes the first master that claims to lead, in any term (`client/master_rpc.cc`),
so it may choose a former leader that is partitioned. In the profile `strict`, this client accepts a
leader only if a majority of the masters has answered and no answer shows a higher term. A master
that is not initialised yet counts as a follower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.env import Env
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.messages import ConnectToMasterRequest
from targets.kudu.rpc import Caller, RpcError

_ROUND_LIMIT_S: Final = 1.0
# After a majority has answered without a leader, the client waits for the remaining masters: this
# long in the first round, and this much longer in each further one.
_GRACE_STEP_S: Final = 0.2


class MasterAnswer(msgspec.Struct, frozen=True):
    """A master's answer: its term, whether it is a ready leader, and the masters that it knows."""

    address: str
    term: int
    ready_leader: bool
    members: tuple[str, ...] = ()


def choose_leader(answers: Sequence[MasterAnswer], asked: Sequence[str]) -> MasterAnswer | None:
    """Return the ready leader of the newest term; `None` if there is none or no majority answered.

    The answers must come from a majority of the members that the leader names. If the leader names
    none, the answers must come from a majority of the masters that were `asked`.
    """
    newest = max((answer.term for answer in answers), default=0)
    leaders = [a for a in answers if a.ready_leader and a.term == newest]
    if not leaders:
        return None
    members = leaders[0].members or asked
    heard = sum(answer.address in members for answer in answers)
    return leaders[0] if 2 * heard > len(members) else None


def first_leader(answers: Sequence[MasterAnswer]) -> MasterAnswer | None:
    """Return the first master that claims to lead, if any, in any term (the defect LEADER-PICK)."""
    return next((answer for answer in answers if answer.ready_leader), None)


class LeaderFinder:
    """One client's search for the leader. The leader is remembered until `forget` is called."""

    def __init__(self, env: Env, rpc: Caller, masters: Sequence[str], policy: RetryPolicy) -> None:
        self._env = env
        self._rpc = rpc
        self._first = self._masters = tuple(masters)
        self._policy = policy
        self._cached: str | None = None
        self._asked_ns = 0  # when the latest round of calls to all masters began
        self._relearning: asyncio.Task[MasterAnswer | None] | None = None

    def forget(self) -> None:
        """Forget the remembered leader, because it did not answer or no longer leads."""
        self._cached = None

    def close(self) -> None:
        if self._relearning is not None:
            self._relearning.cancel()

    async def find(self, deadline: Deadline) -> str | None:
        """Return the leader's address, or `None` if no leader is found before the deadline."""
        failures = 0
        while self._cached is None:
            if deadline.left_s <= 0:
                return None
            failures += 1
            leader = await self._ask_all(
                deadline.limit_s(_ROUND_LIMIT_S), grace_s=_GRACE_STEP_S * failures
            )
            if leader is not None:
                self._cached = leader.address
                break
            if deadline.left_s <= 0:
                return None
            await deadline.pause(self._policy.backoff_s(failures))
        self._relearn()
        return self._cached

    def _relearn(self) -> None:
        every_s, busy = self._policy.relearn_s, self._relearning
        if every_s is None or (busy is not None and not busy.done()):
            return
        if self._env.clock.monotonic_ns() - self._asked_ns >= every_s * 1e9:
            asked = self._ask_all(_ROUND_LIMIT_S, grace_s=_GRACE_STEP_S)
            self._relearning = self._env.spawn(asked, name="relearn-masters")

    async def _ask_all(self, limit_s: float, *, grace_s: float) -> MasterAnswer | None:
        self._asked_ns = self._env.clock.monotonic_ns()
        answers: list[MasterAnswer] = []
        arrived: asyncio.Queue[MasterAnswer | None] = asyncio.Queue()
        tasks = [
            self._env.spawn(self._ask(address, limit_s, arrived), name=f"connect-{address}")
            for address in self._masters
        ]
        leader: MasterAnswer | None = None
        try:
            async with asyncio.timeout(limit_s) as limit:
                for _ in tasks:
                    answer = await arrived.get()
                    if answer is None:
                        continue
                    answers.append(answer)
                    if self._policy.first_leader_wins:
                        leader = first_leader(answers)
                    else:
                        leader = choose_leader(answers, self._masters)
                    if leader is not None:
                        break
                    if 2 * len(answers) > len(self._masters):
                        loop = asyncio.get_running_loop()
                        limit.reschedule(min(limit.when() or 0.0, loop.time() + grace_s))
        except TimeoutError:
            leader = None
        finally:
            for task in tasks:
                task.cancel()
        self._learn(answers)
        return leader

    def _learn(self, answers: Sequence[MasterAnswer]) -> None:
        """From now on, also call all masters that the newest answer names."""
        named = max(answers, key=lambda a: (a.term, a.ready_leader, a.address), default=None)
        if named is not None and self._policy.learns_masters:
            self._masters = tuple(dict.fromkeys((*self._first, *named.members)))

    async def _ask(
        self, address: str, limit_s: float, arrived: asyncio.Queue[MasterAnswer | None]
    ) -> None:
        try:
            response = await self._rpc.call(
                address,
                ConnectToMasterRequest(),
                timeout_s=limit_s,
            )
        except RpcError:
            arrived.put_nowait(None)
            return
        ready = response.error is None and response.role == "LEADER"
        members = response.master_addresses
        arrived.put_nowait(MasterAnswer(address, response.meta.term, ready, members))
