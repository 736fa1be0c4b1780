"""`harness import FILE`: a Jepsen history in EDN becomes a run that `harness check` can judge."""

from __future__ import annotations

import datetime as dt
import platform
from collections.abc import Sequence
from pathlib import Path

from harness import __version__
from harness.case import NS_PER_S, Case
from harness.checking import checkers_of
from harness.cli.output import say
from harness.cli.parser import Parser
from harness.errors import HistoryError
from harness.ops import History, Verdict
from harness.store import RunFolder, RunRecord, new_run_id
from harness.store.edn import load_edn

__all__ = ["main"]


def _record(file: Path, folder: RunFolder, history: History) -> RunRecord:
    """The record of a run that happened elsewhere, and that nobody has judged yet."""
    return RunRecord(
        run=folder.path.name,
        environment="imported",
        started=dt.datetime.now(tz=dt.UTC).isoformat(),
        wall_s=history[-1].time / NS_PER_S if history else 0.0,
        verdict=Verdict.UNKNOWN,
        digest=history.digest(),
        ops=len(history),
        versions={"harness": __version__, "python": platform.python_version()},
        warnings=(f"imported from {file.name}; `harness check` judges it",),
    )


def main(arguments: Sequence[str]) -> int:
    """Read the file whole, then create the run's folder and seal the history in it."""
    parser = Parser(
        prog="harness import",
        description="Turn a Jepsen history (EDN) into a run that `harness check` can judge.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a history.edn")
    parser.add_argument(
        "--workload", default="register", metavar="NAME", help="(default: %(default)s)"
    )
    parser.add_argument("--name", default="imported", metavar="NAME", help="(default: imported)")
    parser.add_argument(
        "--store", type=Path, default=Path("store"), metavar="DIR", help="(default: store)"
    )
    parsed = parser.parse_args(list(arguments))
    case = Case(seed=0, target="imported", workload=parsed.workload, faults=())
    checkers_of(case)  # refuses a workload that nothing could judge
    history = load_edn(parsed.file)
    if history.reused:
        raise HistoryError(
            f"{parsed.file}: a process is used again after its operation ended in info, which a "
            f"stored run cannot hold; judge the file itself: harness check {parsed.file}"
        )
    folder = RunFolder(parsed.store, parsed.name, new_run_id(0))
    folder.write_case(case)
    folder.seal(history)
    folder.finish(_record(parsed.file, folder, history))
    say(str(folder.path))
    return 0
