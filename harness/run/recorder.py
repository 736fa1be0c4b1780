"""The recorder, which gives each op of a run its index and time, and writes the op to the log.

Listeners (progress, tests) see every op only after it is recorded. They cannot change or lose ops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from harness.cluster import CHECKPOINT, ClusterEvent, Controls, NodeSpec
from harness.env import Clock
from harness.errors import InfrastructureError, TargetError, shown
from harness.ops import HARNESS, NS_PER_S, Attempt, History, Op, OpType, Process
from harness.plugins import Completion, Roles
from harness.run.announcements import (
    CONFIG_FORCED,
    CONFIG_OVERRULED,
    INFRASTRUCTURE,
    LEADER,
    NODE_EXITED,
    NODE_STARTED,
    STARVATION,
    check_announced,
)
from harness.run.divergence import Checkpoints
from harness.store.oplog import OpLog
from harness.verdict.unsafe_change import UNSAFE_CHANGE

OPS_MAX: Final = 20_000_000
"""The maximum number of ops. A longer history would not fit in memory, so the run is stopped."""


class Recorder:
    """Collects the history of one run. Times are ns since `start_ns` on the harness's clock."""

    def __init__(self, clock: Clock, log: OpLog | None = None, *, last: int | None = None) -> None:
        """Start the run's clock, and write every op to `log`.

        With `last`, only the last `last` ops stay in memory.
        """
        self.start_ns = clock.monotonic_ns()
        self._clock = clock
        self._log = log
        self._last = last
        self._ops: deque[Op] = deque(maxlen=last)
        self._count = 0
        self._listeners: list[Callable[[Op], None]] = []
        self._failure: Exception | None = None  # why an op could not be written; forbids a verdict

    def listen(self, listener: Callable[[Op], None]) -> None:
        self._listeners.append(listener)

    def now_ns(self) -> int:
        """Return the ns since the start of the run."""
        return self._clock.monotonic_ns() - self.start_ns

    def record(
        self,
        process: Process,
        kind: OpType,
        f: str,
        value: Any = None,
        *,
        error: str | None = None,
        node: str | None = None,
        attempts: Sequence[Attempt] = (),
    ) -> Op:
        """Record one op now. If there is a log, the op then survives a SIGKILL of the harness.

        If an op could not be written, every later call raises the same error again.
        """
        if self._failure is not None:
            raise self._failure
        if self._count >= OPS_MAX and self._last is None:
            raise InfrastructureError(
                f"the run recorded {OPS_MAX} ops, which is the limit; lower --rate or --time-limit"
            )
        op = Op(
            index=self._count,
            time=self.now_ns(),
            process=process,
            type=kind,
            f=f,
            value=value,
            error=error,
            node=node,
            attempts=tuple(attempts),
        )
        if self._log is not None:
            try:
                self._log.append(op)
            except (TypeError, ValueError, OverflowError, RecursionError) as failure:
                self._failure = TargetError(
                    f"{f!r} ({kind.value}) of process {process} has the value {shown(value)}, "
                    f"which is not plain JSON ({failure}); a client or a workload made it"
                )
                raise self._failure from failure
            except Exception as failure:
                self._failure = failure
                raise
        self._ops.append(op)
        self._count += 1
        for listener in self._listeners:
            listener(op)
        return op

    def complete(self, process: Process, f: str, completion: Completion) -> Op:
        """Record the completion of an operation. Times of attempts become times of the run."""
        return self.record(
            process,
            completion.type,
            f,
            completion.value,
            error=completion.error,
            node=completion.node,
            attempts=[
                msgspec.structs.replace(
                    attempt, start=attempt.start - self.start_ns, end=attempt.end - self.start_ns
                )
                for attempt in completion.attempts
            ],
        )

    def fact(self, f: str, value: Any) -> Op:
        """Record an observation of the harness (see the table in `harness.ops`)."""
        return self.record(HARNESS, OpType.INFO, f, value)

    def leave_log(self, *, last: int) -> None:
        """End the history of the run: later ops are not logged, and only `last` ops are kept."""
        self._log = None
        self._listeners.clear()
        self._last = last
        self._ops = deque(self._ops, maxlen=last)

    def history(self) -> History:
        """Return all ops recorded so far; raises the first error if an op could not be recorded."""
        if self._failure is not None:
            raise self._failure
        return History(self._ops)


class Observer(Protocol):
    """A part of the harness that follows a run without changing it."""

    def on_op(self, op: Op) -> None: ...

    def on_event(self, event: ClusterEvent, now_ns: int) -> None:
        """Handle an event of a node. `now_ns` is the time in ns after the start of the run."""
        ...


def observe(observer: Observer, recorder: Recorder, cluster: Controls) -> None:
    """Give `observer` every op and event from now on, in the order in which they occur."""
    recorder.listen(observer.on_op)
    cluster.subscribe(lambda event: observer.on_event(event, recorder.now_ns()))


class EventScribe:
    """Records events as ops.

    These are leaders, exits of nodes, failures of the infrastructure, and differences between
    replicas. Pass its `on_event` to `Cluster.subscribe`.
    """

    def __init__(self, recorder: Recorder, nodes: Iterable[NodeSpec]) -> None:
        """Leaders are recorded once `observe_roles` has named the candidates.

        Only nodes with an `entry` report that they lead.
        """
        self._recorder = recorder
        self.announced = any(spec.entry is not None for spec in nodes)
        self._candidates: tuple[str, ...] = ()
        self._leaderships: dict[tuple[str, int], None] = {}
        self._leader: str | None = None
        self._ended: set[str] = set()  # nodes that are down
        self._asked: set[str] = set()  # groups whose votes a client was about to overrule
        self._checkpoints = Checkpoints()

    def observe_roles(self, roles: Roles) -> None:
        """Record the leader in `roles`, and remember which nodes may lead.

        Called each time the roles were read.
        """
        self._candidates = roles.candidates
        if roles.leader is not None:
            self._lead(roles.leader, roles.by_node[roles.leader].term)

    def on_event(self, event: ClusterEvent) -> None:
        """Record one event; raises `TargetError` for an event that is reserved for the harness."""
        if event.by_driver:
            self._on_driver_event(event)
            return
        # Environments already refuse reserved kinds. This check catches a missing `by_driver`.
        check_announced(event.node, event.kind, event.data)
        if event.kind == CHECKPOINT:
            sent_ns = self._recorder.now_ns() - event.late_ns
            for divergence in self._checkpoints.take(event.node, event.data, sent_ns):
                self._recorder.fact("divergence", divergence)
        elif event.kind == CONFIG_OVERRULED and str(event.data.get("group")) in self._asked:
            self._checkpoints.give_up(str(event.data["group"]))
            self._recorder.fact(UNSAFE_CHANGE, {"node": event.node, **event.data})
        elif event.kind == LEADER:
            self._led(event)

    def _on_driver_event(self, event: ClusterEvent) -> None:
        if event.kind == NODE_STARTED:
            self._ended.discard(event.node)
        elif event.kind == NODE_EXITED:
            self._ended.add(event.node)
            self._leader = None if self._leader == event.node else self._leader
            by = event.data.get("by")
            self._recorder.fact(
                "node-exit",
                {
                    "node": event.node,
                    "code": event.data.get("code"),
                    "expected": bool(event.data.get("expected")),
                    "log": list(event.data.get("log", ()))[-20:],
                    **({} if by is None else {"by": by}),
                },
            )
        elif event.kind == INFRASTRUCTURE:
            value = {"node": event.node or None, "what": str(event.data.get("what", ""))}
            optional = {
                name: event.data.get(name)
                for name in ("lasts", "over", "undid", "impostor", "full")
            }
            value |= {name: each for name, each in optional.items() if each is not None}
            self._recorder.fact(INFRASTRUCTURE, value)
        elif event.kind == STARVATION:
            self._starved(event)
        elif event.kind == CONFIG_FORCED:
            self._asked.add(str(event.data.get("group")))

    def _led(self, event: ClusterEvent) -> None:
        """Compare the new leader with earlier leaders. Record it if it leads the main group."""
        group, term = event.data.get("group"), int(event.data.get("term", 0))
        if isinstance(group, str) and term > 0:
            sent_ns = self._recorder.now_ns() - event.late_ns
            for divergence in self._checkpoints.lead(event.node, group, term, sent_ns):
                self._recorder.fact("divergence", divergence)
        if event.node in self._candidates and event.data.get("main", True):
            self._lead(event.node, term)

    def _starved(self, event: ClusterEvent) -> None:
        """Record a time of CPU starvation that ended before the event."""
        to_s = (event.data["until_ns"] - self._recorder.start_ns) / NS_PER_S
        from_s = max(0.0, to_s - event.data["took_s"])
        if to_s > from_s:
            value = {"from_s": from_s, "to_s": to_s, "waited_s": event.data["waited_s"]}
            self._recorder.fact(STARVATION, value)

    def summarize(self) -> None:
        """Record the summary of all comparisons of replicas, after the final reads."""
        summary = self._checkpoints.summary()
        if summary is not None:
            self._recorder.fact("checkpoints", summary)

    def _lead(self, node: str, term: int) -> None:
        """Record `node` as the leader, once per term. Without terms (term 0), record each change.

        Without terms, a node that is down is not recorded, even if the roles still name it. After
        its restart it is recorded again.
        """
        if term == 0 and node in self._ended:
            return
        recorded = node == self._leader if term == 0 else (node, term) in self._leaderships
        self._leader = node
        if not recorded:
            self._leaderships[node, term] = None
            asked = {} if self.announced else {"asked": True}
            self._recorder.fact("leader", {"node": node, "term": term, **asked})
