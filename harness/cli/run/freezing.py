"""The option `--freeze` of `run` and `soak`, and the report on the frozen cluster.

With `--freeze`, a run pauses all nodes at the first certain violation, and keeps the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError, counted
from harness.freeze.conducting import FreezingConductor
from harness.freeze.prefix import prefix_checkers
from harness.plugins import Checker, Environment
from harness.run.freeze import FOLDER
from harness.run.keep import SIM


def freezing(checkers: Sequence[Checker], environment: Environment) -> FreezingConductor:
    """Return the conductor for runs that may freeze.

    Raises `UsageError` if the environment cannot freeze, or if no checker can judge a history that
    is not complete.
    """
    if environment.name == SIM:
        raise UsageError(
            "--freeze: a simulated cluster ends with the command that runs it, so it cannot stay; "
            "use --env process or --env docker, or stop a simulated run at an operation with "
            "`harness replay RUN --until op=N`"
        )
    prefix_checkers(checkers)
    return FreezingConductor()


def frozen_report(conductor: FreezingConductor | None) -> dict[str, Any] | None:
    """Return the JSON object about the frozen cluster; `None` if the run did not freeze."""
    if conductor is None or conductor.standing is None or conductor.frozen is None:
        return None
    frozen = conductor.frozen
    return {
        "cluster": conductor.standing.name,
        "violation": msgspec.to_builtins(frozen.violation),
        "phase": frozen.phase,
        "pause": frozen.pause,
        "nodes": list(frozen.nodes),
        "faults": list(frozen.faults),
        "states": str(Path(conductor.standing.frozen) / FOLDER),
        "errors": frozen.errors,
    }


def frozen_text(conductor: FreezingConductor | None) -> list[str]:
    """Return lines about the frozen cluster, and the commands for using it."""
    if conductor is None:
        return []
    standing, frozen = conductor.standing, conductor.frozen
    if standing is None or frozen is None:
        return ["the run did not freeze: no violation was certain, and its cluster is removed", ""]
    name, nodes = standing.name, counted(len(frozen.nodes), "node")
    lines = [
        f"frozen {nodes} of the cluster {name!r}, paused by {frozen.pause or 'nothing: all down'}",
        f"states {standing.frozen}/{FOLDER}",
        *(f"       no {what}: {why}" for what, why in frozen.errors.items()),
        f"look   harness status {name}",
    ]
    if frozen.pause:
        lines.append(f"thaw   harness heal {name} {frozen.pause}")
    if frozen.faults:
        lines.append(f"heal   harness heal {name} --all")
    lines += [f"ask    {command}" for command in standing.tools]
    return [*lines, f"end    harness down {name}", ""]
