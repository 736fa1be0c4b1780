"""Makes one replay: runs a case again in the simulation, with a watch that can stop it.

A replay that runs to its end repeats the original run exactly: the same case and code give the same
events in the same order. If the original is stored, every op is compared with it, and the first
difference is reported, since it shows that the code or its settings have changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from harness.case import Case
from harness.environments.sim.environment import Deployment, SimEnvironment
from harness.errors import UsageError, counted, listed
from harness.ops import NS_PER_S, History, Op, encode_op
from harness.plan.planning import Plan, plan_case
from harness.plugins import DeploymentPlan, Session, override
from harness.replay.moments import AtEvent, AtOp, Order, Until
from harness.replay.watch import ReplayQuit, Stop, Watch
from harness.run.phases import conduct

T = TypeVar("T")
_KINDS_SHOWN_MAX = 20


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a replay: the number of its stops, and whether the run reached its end.

    `differs_at` is the index of the first op that differs from the stored run, if there is one.
    `missed` says why the last requested moment never came.
    """

    stops: int
    whole: bool
    ops: int
    time_s: float
    trace_digest: str | None
    differs_at: int | None
    missed: str | None = None


class WatchedSimulation(SimEnvironment):
    """The simulation, with a watch on its world. Ctrl-C ends it at once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @override
    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        deployment = Deployment(plan)
        self._watch.attach(deployment)
        tracer = sys.gettrace()
        try:
            return deployment.run(main, graceful=False)
        finally:
            # a debugger that is still active must not trace the end of the nodes
            sys.settrace(tracer)
            deployment.tear_down()


class Replay:
    """A replay of one case, and the stored `original`, if there is one."""

    def __init__(self, case: Case, original: History | None = None) -> None:
        """Plan the case; raises `UsageError` like a run."""
        self.plan: Plan = plan_case(case, SimEnvironment())
        self.differs_at: int | None = None
        self._original = original
        self.has_original = original is not None
        self._heard: Callable[[Op], None] = lambda _: None

    def listen(self, listener: Callable[[Op], None]) -> None:
        """Call `listener` with each op, for a progress display."""
        self._heard = listener

    def run(self, order: Order, on_stop: Callable[[Watch, Stop], Order]) -> Ended:
        """Run the case until a stop returns `Quit`, or to its end.

        `on_stop` is called at each stop, and returns where to stop next. Raises the errors of runs,
        and `UsageError` if `order` never came.
        """
        watch = Watch(order, lambda stop: on_stop(watch, stop), self.plan.target.message_name)

        def listen(op: Op) -> None:
            self._compare(op)
            self._heard(op)
            watch.on_op(op)

        digest: str | None = None
        whole = True
        try:
            outcome = conduct(
                self.plan,
                WatchedSimulation(watch),
                run_id="replay",
                folder=None,
                listener=listen,
            )
            digest = outcome.trace_digest
            self._compare_end(len(watch.ops))
        except ReplayQuit:
            whole = False
        ended = Ended(
            stops=watch.stops,
            whole=whole,
            ops=len(watch.ops),
            time_s=watch.ops[-1].time / NS_PER_S if watch.ops else 0.0,
            trace_digest=digest,
            differs_at=self.differs_at,
        )
        if whole and isinstance(watch.order, Until):
            missed = _never(watch.order, watch, ended)
            if not watch.stops:
                raise UsageError(missed)
            ended = msgspec.structs.replace(ended, missed=missed)
        return ended

    def _compare(self, op: Op) -> None:
        if self._original is None or self.differs_at is not None:
            return
        original = self._original
        same = op.index < len(original) and encode_op(original[op.index]) == encode_op(op)
        if not same:
            self.differs_at = op.index

    def _compare_end(self, ops: int) -> None:
        """Compare the end of the whole run: it may stop before the stored run did."""
        if self._original is not None and self.differs_at is None and ops < len(self._original):
            self.differs_at = ops


def _never(order: Order, watch: Watch, ended: Ended) -> str:
    """Say why `order` never came, and what the run has instead."""
    if ended.differs_at is None:
        changed = ""
    else:
        changed = (
            f"; the replay differs from the stored run, from op {ended.differs_at} on: the code or "
            "a plug-in has changed since"
        )
    return f"{order} never came: {_instead(order, watch, ended)}{changed}"


def _instead(order: Order, watch: Watch, ended: Ended) -> str:
    if isinstance(order, AtOp):
        return f"the last op of the run is op={ended.ops - 1}"
    if not isinstance(order, AtEvent):
        return f"the run ended at {ended.time_s:.3f} s"
    count = watch.kinds[order.trigger.event]
    if not count:
        kinds = listed([kind for kind, _ in watch.kinds.most_common()], limit=_KINDS_SHOWN_MAX)
        return f"no node announced such an event; the run has {kinds}"
    text = f"nodes announced {order.trigger.event!r} {counted(count, 'time')}"
    if not order.trigger.where:
        return text
    since = " after the last stop" if watch.stops else ""
    other = ",".join(f"{name}={_plain(value)}" for name, value in watch.unlike.items())
    return f"{text}, {watch.matched} of them with these fields{since}" + (
        f"; the last of the others had {other}" if other else ""
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
