"""`harness check-determinism`: runs one case repeatedly, with different hash seeds.

Each run is a child process with a different `PYTHONHASHSEED`, and with environment variables of a
different size, which shifts memory addresses. Both change the order in which Python iterates over a
set. The case is deterministic if all runs have the same history, and the same trace of messages and
events. Otherwise the first event that differs points to the cause. (madsim and FoundationDB's
TestHarness2 compare runs in a similar way.)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.environments.sim.trace import first_divergence
from harness.errors import EXIT_INVALID, EXIT_VALID, InfrastructureError, UsageError, counted
from harness.plan.planning import plan_case
from harness.registry import load_plugin

CHILD_TIMEOUT_S: Final = 900.0
RUNS_MAX: Final = 64


def main(arguments: Sequence[str]) -> int:
    """Run a case several times; return 0 if the runs are equal, else print how they differ."""
    parsed = _parse(arguments)
    if not 2 <= parsed.runs <= RUNS_MAX:
        raise UsageError(f"--runs is {parsed.runs}; it must be in 2 .. {RUNS_MAX}")
    case = plan_case(case_from(parsed, parsed.seed), load_plugin("environments", "sim")).case
    with tempfile.TemporaryDirectory(prefix="harness-determinism-") as folder:
        traces = [Path(folder) / f"trace-{number}" for number in range(parsed.runs)]
        reports = [_child(case, number, trace) for number, trace in enumerate(traces)]
        digests = [report["history_sha256"] for report in reports]
        for number, report in enumerate(reports):
            say(f"hash seed {number}: history {digests[number]} trace {report['trace_digest']}")
        for number, trace in enumerate(traces[1:], start=1):
            parting = first_divergence(traces[0], trace)
            if parting is not None:
                say(f"NOT DETERMINISTIC: seed {case.seed}, hash seeds 0 and {number}: {parting}")
                return EXIT_INVALID
        if len(dict.fromkeys(digests)) > 1:
            say(f"NOT DETERMINISTIC: seed {case.seed}: equal traces, but the histories differ")
            return EXIT_INVALID
    say(
        f"deterministic: seed {case.seed} gave the same bytes "
        f"in {counted(parsed.runs, 'interpreter')}"
    )
    return EXIT_VALID


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness check-determinism",
        description="Run one case in fresh interpreters under different hash seeds and compare.",
    )
    parser.add_argument(
        "--runs", type=int, default=4, metavar="N", help="number of runs (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the case (default: a random one)"
    )
    return parse_case_options(parser, arguments)


def _child(case: Case, number: int, trace: Path) -> dict[str, Any]:
    knobs = {**case.knobs, "trace": str(trace)}
    file = trace.with_suffix(".json")
    file.write_bytes(msgspec.structs.replace(case, knobs=knobs).encode())
    words = ["run", "--env", "sim", "--json", "--quiet", "--case", str(file)]
    words += ["--store", str(trace.parent / f"store-{number}")]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(number),
        "HARNESS_PADDING": "x" * (number * 1013),
    }
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "harness", *words],
            env=environment,
            capture_output=True,
            timeout=CHILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"the run under hash seed {number} took more than {CHILD_TIMEOUT_S:g} s; "
            "give a shorter --time-limit"
        ) from error
    if child.returncode not in {0, 1, 2}:
        raise InfrastructureError(
            f"the run under hash seed {number} failed with {child.returncode}: "
            f"{child.stderr.decode(errors='replace').strip()[-2000:]}"
        )
    report: dict[str, Any] = msgspec.json.decode(child.stdout)
    return report
