"""The fixture `cluster`: a deployed target, in any environment, for a test's own coroutine.

An environment owns the event loop of a deployment (in the simulation, with virtual time). So a test
passes a coroutine to `Deployment.run` instead of receiving a cluster. Everything that the coroutine
does through `LiveCluster` is recorded like the operations of a run, and `history.check` can judge
it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from harness.cli.run.choose import choose_environment
from harness.errors import UsageError
from harness.plan.planning import Plan, plan_case
from harness.plan.reach import foreign_clocks
from harness.plugins import DeploymentPlan, Environment, Session
from harness.pytesting.cases import refuse_running_loop
from harness.pytesting.live import LiveCluster
from harness.pytesting.markers import case_from_settings
from harness.pytesting.runs import Fixture, LastRun, RunsOfTest
from harness.run.keep import finish_run, new_record
from harness.run.phases import Outcome
from harness.run.recorder import Recorder
from harness.run.starting import explaining_start
from harness.verdict.judge import Judgement

T = TypeVar("T")
READY_BOUND_S: Final = 60.0
UNJUDGED: Final = Judgement(())
BY_HAND: Final = "a coroutine of a test made this run; its case alone does not replay it"


class ClusterFactory(Fixture):
    """The fixture `cluster`. Nothing is deployed before `Deployment.run`."""

    def __call__(self, **settings: object) -> Deployment:
        """Plan a deployment; `settings` are the flags of `harness run`, with underscores.

        `nemesis` injects nothing by itself: it names the nemeses that the coroutine may use, so
        that nodes are started with the support that they need. Raises `UsageError` for impossible
        settings.
        """
        __tracebackhide__ = True
        env_name, wanted = self._runs.merged_settings(settings)
        environment = choose_environment(env_name)
        plan = plan_case(case_from_settings({**wanted, "nemesis": "none"}), environment)
        announced = plan_case(case_from_settings(wanted), environment).nemeses
        clocks = foreign_clocks(announced, plan.nodes)
        return Deployment(self._runs, plan, environment, clocks)


@dataclass(eq=False)
class Deployment:
    """A target that is deployed at each `run` (see `ClusterFactory`)."""

    _runs: RunsOfTest
    _plan: Plan
    _environment: Environment
    _clocks: frozenset[str]  # foreign programs that support clock faults

    def run(self, body: Callable[[LiveCluster], Coroutine[Any, Any, T]]) -> T:
        """Deploy, wait until the target serves, run `body`, tear down; returns `body`'s result.

        Exceptions of `body` propagate after the history is sealed. Raises `TargetError` if the
        target does not serve.
        """
        __tracebackhide__ = True
        refuse_running_loop("cluster(...).run")
        if self._runs.live is not None:
            raise UsageError("a cluster of this test is already running; run one cluster at a time")
        folder = self._runs.new_folder(self._plan.case)
        plan = DeploymentPlan(
            run_id=folder.path.name,
            nodes=self._plan.nodes,
            seed=self._plan.case.seed,
            knobs=self._plan.case.knobs,
            folder=folder.path,
            clocks=self._clocks,
        )
        folder.write_case(self._plan.case)
        log = folder.open_log()
        recorders: list[Recorder] = []
        started, begin_s = dt.datetime.now(tz=dt.UTC), time.monotonic()

        async def main(session: Session) -> T:
            __tracebackhide__ = True
            recorder = Recorder(session.env.clock, log)
            recorders.append(recorder)
            return await self._main(session, recorder, body)

        interrupted = False
        try:
            with explaining_start(self._plan):
                return self._environment.execute(plan, main)
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            self._runs.live = None
            log.close()
            if recorders:
                wall_s = time.monotonic() - begin_s
                outcome = Outcome(
                    history=recorders[0].history(),
                    interrupted=interrupted,
                    stop_asked=interrupted,
                    wall_ns=recorders[0].now_ns(),
                    trace_digest=None,
                )
                folder.seal(outcome.history)
                record = new_record(
                    folder.run_id,
                    self._environment,
                    outcome,
                    UNJUDGED,
                    started=started,
                    wall_s=wall_s,
                    warnings=(BY_HAND,),
                )
                finish_run(folder, record, UNJUDGED)
                self._runs.take(LastRun(self._plan.case, outcome.history, folder, record))

    async def _main(
        self,
        session: Session,
        recorder: Recorder,
        body: Callable[[LiveCluster], Coroutine[Any, Any, T]],
    ) -> T:
        __tracebackhide__ = True
        live = LiveCluster(self._plan, session, recorder, self._environment, self._clocks)
        await live.become_ready(READY_BOUND_S)
        self._runs.live = live
        task = asyncio.ensure_future(body(live))
        stop = asyncio.ensure_future(session.interrupted.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise KeyboardInterrupt
            return task.result()
        finally:
            stop.cancel()
            task.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)
            await live.close()
