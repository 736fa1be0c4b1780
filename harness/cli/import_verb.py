"""`harness import FILE`: a history that others recorded becomes a run, which `check` can judge.

Values stay as they are, and the model that the operations suggest, or that is given, is recorded:
`harness check` of the run says what it says of the file. What `harness export` wrote of a run of
ours is judged by the checkers of its workload instead. What these cannot read is refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness import __version__
from harness.case import NS_PER_S, Case
from harness.checking import checkers_of
from harness.cli.check_tasks import IMPORTED, imported_case, located_in
from harness.cli.check_verb import require_kind
from harness.cli.output import say
from harness.cli.parser import Parser, add_store
from harness.errors import HistoryError, UsageError
from harness.formats import model_for, open_history
from harness.ops import HARNESS, History, ModelSettings, Verdict
from harness.plugins import HistoryModel
from harness.registry import load_plugin
from harness.store import RunFolder, RunRecord, check_place, new_run_id, read_parquet

__all__ = ["main"]

TRIAL_S: Final = 0.1
"""How long a checker may look at what it may not be able to read."""


def _record(file: Path, folder: RunFolder, history: History) -> RunRecord:
    """The record of a run that happened elsewhere, and that nobody has judged yet."""
    return RunRecord(
        run=folder.run_id,
        environment=IMPORTED,
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
        description="Turn a history that others recorded into a run that `harness check` can judge."
        "\nWithout --model, --elle and --workload its format and operations suggest the model.",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a history.edn, or what check reads"
    )
    judges = parser.add_mutually_exclusive_group()
    judges.add_argument("--model", metavar="M", help="the model that judges it")
    judges.add_argument("--elle", metavar="KIND", help="list-append, rw-register, closed-predicate")
    judges.add_argument(
        "--workload",
        metavar="NAME",
        help="it is an export of a run with this workload, whose checkers judge it (default of "
        "exports: register)",
    )
    parser.add_argument("--name", default="imported", metavar="NAME", help="(default: imported)")
    add_store(parser)
    parsed = parser.parse_args(list(arguments))
    file: Path = parsed.file
    for kind in ("model", "elle"):
        if getattr(parsed, kind) is not None:
            require_kind(getattr(parsed, kind), kind)
    if parsed.workload is not None:  # refuses one that nothing could judge
        checkers_of(Case(seed=0, target=IMPORTED, workload=parsed.workload, faults=()))
    source = open_history(file)
    history = History(source, foreign=True)
    if not history:
        raise HistoryError(
            f"{str(file)!r} holds no operation; a history has operations: name the file "
            "that they are in"
        )
    if history.reused:
        raise HistoryError(
            f"{file}: a process is used again after its operation ended in info, which a "
            f"stored run cannot hold; judge the file itself: harness check {file}"
        )
    model = parsed.model or parsed.elle
    try:
        case = _case(file, history, model, parsed.workload, source.format)
        say(str(_stored(file, history, case, parsed.store, parsed.name)))
    except HistoryError as error:
        raise located_in(file, source, error) from error
    return 0


def _case(
    file: Path, history: History, model: str | None, workload: str | None, format_: str
) -> Case:
    """The case that says what judges the history; raises what the judges raise of its words."""
    is_ours = any(op.process == HARNESS for op in history)
    if model is None and (workload is not None or is_ours):
        case = Case(seed=0, target=IMPORTED, workload=workload or "register", faults=())
        for checker in checkers_of(case):
            try:
                checker.check(history, case, time_limit_s=TRIAL_S)
            except HistoryError as error:
                raise HistoryError(
                    f"{error}; the checkers of the workload {case.workload!r} read only exports of "
                    "its runs: name another --workload, or the --model that judges it"
                ) from error
        return case
    try:
        name = model or model_for(format_, history)
        judge: HistoryModel = load_plugin("models", name)
        judge.prepare(history, ModelSettings())
    except HistoryError:
        raise  # it names the op
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    return imported_case(name)


def _stored(file: Path, history: History, case: Case, store: Path, name: str) -> Path:
    """Where the run is now. Of one that no store can hold, nothing is left, folders neither."""
    check_place(store, name)
    missing = [each for each in (store / name, store, *store.parents) if not each.exists()]
    folder = RunFolder(store, name, new_run_id(0), staged=True)
    try:
        folder.write_case(case)
        folder.seal(history)
        folder.finish(_record(file, folder, history))
        read_parquet(folder.path / "history.parquet")  # what cannot be read again is not kept
        return folder.publish(latest=True)
    except BaseException:
        folder.discard()
        with contextlib.suppress(OSError):  # somebody else may use them by now
            for each in missing:
                each.rmdir()
        raise
