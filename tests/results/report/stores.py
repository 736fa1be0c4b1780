"""Stores to report on, made by simulated runs with various nemeses, bugs, labels and workloads."""

import dataclasses
from pathlib import Path

from harness.case import Case
from harness.plan.planning import plan_case
from harness.plugins.options import default_values
from harness.registry import load_plugin
from harness.run.phases import conduct
from harness.verdict.judge import judge
from tests.support.run_folders import keep_run


@dataclasses.dataclass(frozen=True)
class Spec:
    seed: int
    nemeses: tuple[str, ...] = ("none",)
    bugs: tuple[str, ...] = ()
    workload: str = "ddl"
    label: str | None = None
    time_limit_s: float = 3.0


COMPARED = (("none",), ("kill-leader",))
"""The nemeses for which the tests check the comparison; both labels have enough runs with each."""
MIXED = (
    *(
        Spec(seed, nemeses, label=label)
        for nemeses in COMPARED
        for seed, label in ((1, "old"), (2, "old"), (3, "old"), (1, "new"), (4, "new"))
    ),
    *(
        Spec(seed, nemeses, label=label)
        for nemeses in (("partition-leader",), ("partition-leader", "kill-leader"))
        for seed, label in ((1, "old"), (1, "new"), (4, "new"))
    ),
    *(Spec(seed, ("pause-leader",), label="new") for seed in (1, 4)),
    *(Spec(seed, ("partition-leader",), ("NO-LEASE",)) for seed in (2, 10)),
    *(Spec(seed, ("kill-leader",), ("ORDER-CREATE",)) for seed in (1, 2)),
    Spec(1, ("pause-leader",), ("KUDU-765", "NO-LEASE")),
    Spec(1, ("partition-halves",), workload="append", label="new"),
    Spec(7, ("power-cut-leader",)),
)
LAST_SEED_FIRST = 2
"""The last seed of the first day; runs with higher seeds have a later day and other code."""


def case_of(spec: Spec) -> Case:
    workload = load_plugin("workloads", spec.workload)
    target = load_plugin("targets", "kudu")
    options = default_values(target.options)
    return Case(
        seed=spec.seed,
        nemeses=spec.nemeses,
        bugs=spec.bugs,
        workload=spec.workload,
        target_options=options,
        workload_options=default_values(workload.options),
        time_limit_s=spec.time_limit_s,
        interval_s=3.0,
        duration_s=1.5,
        rate=40.0,
        op_timeout_s=1.0,
    )


def add_run(store: Path, name: str, spec: Spec) -> Path:
    environment = load_plugin("environments", "sim")
    plan = plan_case(case_of(spec), environment)
    run = f"seed-{spec.seed}-{spec.label}"
    outcome = conduct(plan, environment, run_id=run, folder=None)
    judgement = judge(outcome.history, plan.case, plan.checkers)
    return keep_run(
        store, name, run, plan.case, outcome.history, judgement.results,
        verdict=judgement.verdict, label=spec.label, simulated_s=outcome.wall_ns / 1e9,
        started=started_of(spec), versions={"harness": "0", "code": code_of(spec)},
    )  # fmt: skip


def started_of(spec: Spec) -> str:
    day = (1 if spec.label == "old" else 3) + (spec.seed > LAST_SEED_FIRST)
    return f"2026-01-0{day}T00:00:{spec.seed:02}+00:00"


def code_of(spec: Spec) -> str:
    return "bbbb" if spec.seed > LAST_SEED_FIRST else "aaaa"


def make_store(store: Path, specs: tuple[Spec, ...] = MIXED) -> Path:
    for spec in specs:
        words = (spec.workload, *spec.nemeses, *spec.bugs)
        add_run(store, "-".join(words), spec)
    return store
