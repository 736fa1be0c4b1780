"""The fixture `nemesis`: a fault that lasts as long as a block of the test's coroutine.

The plug-ins are the same as in a run. Targets are chosen when the fault begins, and faults are
recorded as in a run. A fault that has no effect fails the test unless it `may_miss`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from harness.case import Fault, stream
from harness.cluster import Bite, Capability
from harness.errors import UsageError
from harness.faults.nemesis_from_text import load_nemesis
from harness.ops import NS_PER_S
from harness.plan.fault_plans import check_fault_args, drawn_by_hand
from harness.plan.reach import refuse_by_hand, refuse_unable
from harness.plugins import Nemesis
from harness.pytesting.live import LiveCluster
from harness.pytesting.runs import Fixture, RunsOfTest
from harness.run.conductor import trigger_of

LEASE_S: Final = 600.0
"""The maximum duration of a block's fault, in seconds. Afterwards it is healed anyway."""


class NemesisFactory(Fixture):
    """The fixture `nemesis`. Nothing is broken before a block begins."""

    def __init__(self, runs: RunsOfTest) -> None:
        super().__init__(runs)
        self._numbers = itertools.count(1)

    def __call__(
        self, name: str, *, args: Mapping[str, Any] | None = None, may_miss: bool = False
    ) -> Strike:
        """Return a fault as a context manager: `async with nemesis("kill-leader"): ...`.

        `args` replaces the arguments that the nemesis would draw from the seed. Raises `UsageError`
        outside the coroutine of `cluster(...).run`, for a fault that the environment cannot
        perform, for a fault that waits for an event, and for the clock of a foreign program that
        was not started with support for clock faults.
        """
        __tracebackhide__ = True
        live = self._runs.live
        if live is None:
            raise UsageError(
                f"nemesis({name!r}) needs a running cluster: use it inside the coroutine that "
                "you give to cluster(...).run"
            )
        plugin: Nemesis = load_nemesis(name)
        refuse_unable({name: plugin}, live.cluster.environment, live.cluster.capabilities)
        refuse_by_hand(
            plugin,
            live.cluster.nodes,
            live.plan.target,
            live.environment,
            clocks=live.clocks,
            fix=f"write cluster(nemesis={name!r}), or name it in the marker harness",
        )
        if Capability.SINGLE_CLIENTS in plugin.requires:
            raise UsageError(
                f"nemesis({name!r}) hits single clients, but the clients of a test's own coroutine "
                "share their links; aim at 'client', or give the words to `harness run` as --fault"
            )
        number = next(self._numbers)  # so that a replay draws the same fault for each block
        fault = Fault(
            id=live.ledger.new_id(),
            nemesis=name,
            at_ns=live.recorder.now_ns(),
            duration_ns=int(LEASE_S * NS_PER_S),
            args=drawn_by_hand(plugin, stream(live.plan.case.seed, f"strike/{number}"))
            if args is None
            else dict(args),
        )
        check_fault_args(fault, plugin)
        if trigger_of(plugin, fault) is not None:
            raise UsageError(
                f"nemesis({name!r}) waits for an event of a node, but the fault of a block begins "
                "with the block: leave out 'when event ...', or give the words to `harness run` as "
                "--fault"
            )
        live.nemeses[name] = plugin
        return Strike(live, fault, may_miss=may_miss)


class Strike:
    """One fault, active inside a block; then it is healed and its effect measured."""

    def __init__(self, live: LiveCluster, fault: Fault, *, may_miss: bool) -> None:
        self._live = live
        self._fault = fault
        self._may_miss = may_miss
        self.targets: tuple[str, ...] = ()
        self.note = ""
        self.bite: Bite | None = None

    async def __aenter__(self) -> Self:
        __tracebackhide__ = True
        injection = await self._live.conductor.strike(self._fault)
        self.targets, self.note = injection.targets, injection.note
        if not self.targets and not self._may_miss:
            raise AssertionError(
                f"the nemesis {self._fault.nemesis!r} hit nothing: {self.note} "
                "(may_miss=True accepts this)"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.bite = await self._live.conductor.heal(self._fault.id)
        if error is not None or self._may_miss or not self.targets:
            return
        if self.bite is not None and self.bite.undone:
            raise AssertionError(
                f"the nemesis {self._fault.nemesis!r} aimed at {', '.join(self.targets)}, and "
                "its fault was ended from outside of the block (may_miss=True lets this pass)"
            )
        if self.bite is not None and self.bite.count == 0:
            raise AssertionError(
                f"the nemesis {self._fault.nemesis!r} aimed at {', '.join(self.targets)} and hit "
                f"no {self.bite.unit}: let more happen inside the block (may_miss=True lets this "
                "pass)"
            )
