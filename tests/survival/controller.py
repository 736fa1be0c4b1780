"""A harness for tests to kill, which runs a case and reports each recorded op to its parent."""

import sys
from pathlib import Path

from harness.case import Case
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.run.phases import conduct
from harness.store import RunFolder

CASES = {
    "kudu": {
        "target": "kudu",
        "nemeses": (
            "partition-leader",
            "kill-leader",
            "pause-leader",
            "shape leader to members slice=64B",
        ),
    },
    "hive": {
        "target": "hive",
        "workload": "hms-ddl",
        "nemeses": ("partition-metastore", "kill-random", "pause-database", "power-cut-database"),
    },
    "hive-zookeeper": {
        "target": "hive",
        "workload": "hms-tokens",
        "target_options": {"token_store": "zookeeper"},
        "nemeses": ("kill-zookeeper", "pause-zookeeper", "partition-zookeeper", "kill-metastore"),
    },
    "apache-hive-kdc": {
        "target": "apache-hive",
        "workload": "hms-tokens",
        "target_options": {"kdc": True},
        "nemeses": ("kill-random", "pause-random"),
    },
}

environment_name, seed, store, run_id, name = sys.argv[1:]
environment = load_plugin("environments", environment_name)
case = Case(seed=int(seed), interval_s=4.0, duration_s=2.0, time_limit_s=120.0, **CASES[name])
plan = plan_case(case, environment)
folder = RunFolder(Path(store), "survival", run_id)
folder.write_case(plan.case)
conduct(
    plan,
    environment,
    run_id=run_id,
    folder=folder,
    listener=lambda op: print(op.index, flush=True),
)
