"""The holder (owning process) of a run's cluster: conducts the run, and keeps a frozen cluster.

The command that started the holder follows and judges the op log, and asks for the freeze
(`harness.freeze.conducting`). Once all phases are over, the holder waits for the command's
decision, since the final reads may be the first to show a violation.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.plan.deploying import deployment_of
from harness.plan.planning import plan_case
from harness.plan.reach import foreign_clocks
from harness.plugins import Environment, Session
from harness.registry import load_plugin
from harness.run.freeze import Freezer
from harness.run.phases import Run
from harness.run.recorder import Recorder
from harness.run.starting import explaining_start
from harness.store.folder import OPS_LOG
from harness.store.oplog import OpLog
from harness.up.cluster import OPS_KEPT, StandingCluster
from harness.up.control_socket import Freeze, Question, Release, open_door
from harness.up.holding import Hold
from harness.up.records import Ended, Order, Place, RunOrder

_CONDUCTING: Final = (
    "the cluster belongs to a run in progress; wait until the run has frozen, or press Ctrl-C in "
    "its command"
)


class RunHolder:
    """Conducts one run. If the run freezes, keeps its cluster until `harness down`."""

    def __init__(
        self, place: Place, order: Order, run: RunOrder, deployed: threading.Event
    ) -> None:
        """Plan the run. `deployed` is set once the cluster is deployed."""
        self._place = place
        self._order = order
        self._run = run
        self._folder = Path(run.folder)
        self._deployed = deployed
        self._environment: Environment = load_plugin("environments", order.environment)
        self._plan = plan_case(order.case, self._environment)
        self._hold = Hold(place, order, self._plan)
        self._freezer: Freezer | None = None
        self._cluster: StandingCluster | None = None

    def hold(self) -> bool:
        """Conduct the run, and keep a frozen cluster; returns whether the end was regular."""
        deployment = deployment_of(
            self._plan,
            run_id=self._order.run_id,
            folder=self._folder,
            link_proxy=self._run.link_proxy,
        )
        self._log = OpLog(self._folder / OPS_LOG)
        try:
            with explaining_start(self._plan):
                return self._environment.execute(deployment, self._main)
        finally:
            self._log.close()

    async def _main(self, session: Session) -> bool:
        self._deployed.set()
        recorder = Recorder(session.env.clock, self._log)
        run = Run(self._plan, session, recorder)
        freezer = self._freezer = Freezer(run, self._folder)
        async with open_door(self._place.folder, self._answer):
            marking = asyncio.ensure_future(self._mark_over(freezer))
            try:
                interrupted, frozen = await freezer.phases()
            finally:
                marking.cancel()
            ended = Ended(
                interrupted=interrupted,
                stop_asked=session.interrupted.is_set(),
                wall_ns=recorder.now_ns(),
                frozen=frozen,
            )
            recorder.leave_log(last=OPS_KEPT)
            if frozen is None:
                self._place.write_ended(ended)
                return True
            run.conductor.reopen()
            clocks = foreign_clocks(self._plan.nemeses, self._plan.nodes)
            self._cluster = StandingCluster(run, self._environment, clocks=clocks)
            self._place.write_standing(
                self._hold.standing(session, frozen=self._folder, pause=frozen.pause)
            )
            self._place.write_ended(ended)
            session.interrupted.clear()  # Ctrl-C ended the workload, but the frozen cluster stays
            async with self._hold.ending(session) as over:
                await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # let `answer` reply to `harness down`
            return self._hold.down.is_set()

    async def _mark_over(self, freezer: Freezer) -> None:
        await freezer.over.wait()
        self._place.mark_over()

    async def _answer(self, question: Question) -> Any:
        assert self._freezer is not None, "set before the door opens"
        if self._cluster is not None and not isinstance(question, Freeze | Release):
            return await self._hold.answer(self._cluster, question)
        match question:
            case Freeze(violation=violation):
                self._freezer.ask(violation)
            case Release():
                self._freezer.release()
            case _:
                raise UsageError(_CONDUCTING)
        return None
