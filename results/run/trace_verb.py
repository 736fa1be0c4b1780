"""The command `harness trace RUN`, which writes a run as a trace for the Perfetto viewer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.store import load_run
from harness.support.atomic_file import descriptor_of, refuse_folder
from results.run.perfetto import TRACE_FILE, trace_of
from results.run.trace_events import write_trace

STDOUT: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Write the trace of a run to a file, and print the file's path."""
    parser = Parser(
        prog="harness trace",
        description="Write a run as a trace: open https://ui.perfetto.dev and drop the file there "
        "(it stays in your browser).",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file for the trace; compressed if the name ends in .gz (default: trace.json in the "
        "run's folder)",
    )
    parsed = parser.parse_args(list(arguments))
    path: Path = parsed.output or parsed.run / TRACE_FILE
    refuse_folder("--output", path)
    run = load_run(parsed.run)
    if run.note is not None:
        note(f"harness: {run.note}")
    write_trace(trace_of(run), path)
    if descriptor_of(path) != STDOUT:  # stdout must hold only the trace
        say(str(path))
    return 0
