"""Determines the deployment of a planned run: its nodes, seeds, link ends and clocks."""

from __future__ import annotations

from pathlib import Path

from harness.plan.planning import Plan
from harness.plan.reach import client_ends, foreign_clocks, nodes_for
from harness.plugins import DeploymentPlan


def deployment_of(
    plan: Plan, *, run_id: str, folder: Path | None, link_proxy: str | None
) -> DeploymentPlan:
    """Return the deployment of a run. The nodes' logs go below `folder`, if it is given."""
    return DeploymentPlan(
        run_id=run_id,
        nodes=nodes_for(plan.nodes, plan.nemeses),
        seed=plan.case.seed,
        knobs=plan.case.knobs,
        folder=folder,
        link_proxy=link_proxy,
        clients=plan.case.concurrency + 1,  # one more for operations of the harness itself
        ends=client_ends(plan.nemeses, plan.case.concurrency),
        clocks=foreign_clocks(plan.nemeses, plan.nodes),
    )
