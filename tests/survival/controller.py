"""A harness to be killed: runs a case and tells its parent each op after it was recorded."""

import sys
from pathlib import Path

from harness.case import Case
from harness.planning import plan_case
from harness.registry import load_plugin
from harness.run import conduct
from harness.store import RunFolder

SLICES = "shape leader to members slice=64B"
NEMESES = {
    "kudu": ("partition-leader", "kill-leader", "pause-leader", SLICES),
    "hive": ("partition-metastore", "kill-random", "pause-database", "power-cut-database"),
    "apache-hive": ("kill-random", "pause-random"),
}
OPTIONS = {"apache-hive": {"kdc": True}}
environment = load_plugin("environments", sys.argv[1])
target = load_plugin("targets", sys.argv[5])
case = Case(
    seed=int(sys.argv[2]),
    target=target.name,
    workload=getattr(target, "workload", "ddl"),
    target_options=OPTIONS.get(target.name, {}),
    nemeses=NEMESES[target.name],
    interval_s=4.0,
    duration_s=2.0,
    time_limit_s=120.0,
)
plan = plan_case(case, environment)
folder = RunFolder(Path(sys.argv[3]), "survival", sys.argv[4])
folder.write_case(plan.case)
conduct(
    plan,
    environment,
    run_id=sys.argv[4],
    folder=folder,
    listener=lambda op: print(op.index, flush=True),
)
