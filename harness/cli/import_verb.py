"""`harness import FILE`: a Jepsen history in EDN becomes a run that `harness check` can judge."""

from __future__ import annotations

import contextlib
import datetime as dt
import platform
from collections.abc import Sequence
from pathlib import Path

from harness import __version__
from harness.case import NS_PER_S, Case
from harness.checking import checkers_of
from harness.cli.output import say
from harness.cli.parser import Parser, add_store
from harness.errors import HistoryError
from harness.ops import History, Verdict
from harness.store import RunFolder, RunRecord, check_place, new_run_id
from harness.store.edn import load_edn

__all__ = ["main"]


def _record(file: Path, folder: RunFolder, history: History) -> RunRecord:
    """The record of a run that happened elsewhere, and that nobody has judged yet."""
    return RunRecord(
        run=folder.run_id,
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
    """Read the file whole, then seal the history in a run's folder, which is there at once."""
    parser = Parser(
        prog="harness import",
        description="Turn a Jepsen history (EDN) into a run that `harness check` can judge.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a history.edn")
    parser.add_argument(
        "--workload", default="register", metavar="NAME", help="(default: %(default)s)"
    )
    parser.add_argument("--name", default="imported", metavar="NAME", help="(default: imported)")
    add_store(parser)
    parsed = parser.parse_args(list(arguments))
    case = Case(seed=0, target="imported", workload=parsed.workload, faults=())
    checkers_of(case)  # refuses a workload that nothing could judge
    history = load_edn(parsed.file)
    if not history:
        raise HistoryError(
            f"{str(parsed.file)!r} holds no operation; a history has operations: name the file "
            "that they are in"
        )
    if history.reused:
        raise HistoryError(
            f"{parsed.file}: a process is used again after its operation ended in info, which a "
            f"stored run cannot hold; judge the file itself: harness check {parsed.file}"
        )
    say(str(_stored(parsed.file, history, case, parsed.store, parsed.name)))
    return 0


def _stored(file: Path, history: History, case: Case, store: Path, name: str) -> Path:
    """Where the run is now. Of one that no store can hold, nothing is left, folders neither."""
    check_place(store, name)
    missing = [each for each in (store / name, store, *store.parents) if not each.exists()]
    folder = RunFolder(store, name, new_run_id(0), staged=True)
    try:
        folder.write_case(case)
        folder.seal(history)
        folder.finish(_record(file, folder, history))
        return folder.publish(latest=True)
    except BaseException:
        folder.discard()
        with contextlib.suppress(OSError):  # somebody else may use them by now
            for each in missing:
                each.rmdir()
        raise
