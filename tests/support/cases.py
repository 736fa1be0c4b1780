"""Cases with the defaults of their plug-ins, run in the simulation and judged."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from harness.case import Case
from harness.ops import History, Verdict
from harness.plan.planning import plan_case
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from harness.run.phases import conduct
from harness.verdict.judge import Judgement, judge


def case_of(workload: Any, *, target: dict[str, Any] | None = None, **options: Any) -> Case:
    """Build a case of seed 1; `options` are options of the workload, a plug-in."""
    return Case(
        seed=1,
        workload=workload.name,
        workload_options=with_defaults("workload", workload.name, workload.options, options),
        target_options=target or {},
    )


@dataclasses.dataclass
class Simulated:
    """A case that was run in the simulation: its plan, and the run's outcome."""

    plan: Any
    outcome: Any

    @property
    def history(self) -> History:
        return self.outcome.history

    def judgement(self, *, time_limit_s: float = 60.0) -> Judgement:
        return judge(self.history, self.plan.case, self.plan.checkers, time_limit_s=time_limit_s)


def simulated(
    case: Case,
    *,
    environment: Any = None,
    folder: Path | None = None,
    listener: Any = None,
    **plan: Any,
) -> Simulated:
    """Conduct a case; `environment` wraps the simulation, `plan` replaces fields of the plan."""
    world = environment or load_plugin("environments", "sim")
    planned = msgspec.structs.replace(plan_case(case, world), **plan)
    outcome = conduct(planned, world, run_id="test", folder=folder, listener=listener)
    return Simulated(planned, outcome)


def judged(case: Case, **options: Any) -> Judgement:
    return simulated(case, **options).judgement()


def convicting(judgement: Judgement) -> set[str]:
    """Return the checkers whose result is invalid."""
    return {each.checker for each in judgement.results if each.verdict is Verdict.INVALID}
