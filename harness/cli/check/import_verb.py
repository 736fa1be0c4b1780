"""`harness import FILE`: stores another tool's history as a run, to be judged later.

Values are not converted. The run records the model: the one that the user names or that the
operations suggest. So `harness check` returns the same verdict for the run and for the file. The
run also records whether its keys are independent, so that a report judges each key separately.

A file that `harness export` wrote needs no model: the checkers of `--workload` (default:
`register`) judge it. A history that its model or checkers cannot read is refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import platform
from argparse import BooleanOptionalAction
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness import __version__
from harness.case import IMPORTED, Case, imported_case
from harness.cli.check.guess import require_decided
from harness.cli.check.tasks import located_in
from harness.cli.check.verb import require_kind
from harness.cli.output import note, say
from harness.cli.parser import Parser, add_store
from harness.errors import HistoryError, UsageError, counted
from harness.formats import model_for, open_history
from harness.independent import Shape, shape_of, split
from harness.ops import HARNESS, NS_PER_S, History, ModelSettings, Verdict, digest_of
from harness.plugins import HistoryModel
from harness.store import RunFolder, RunRecord, check_place, new_run_id
from harness.store.parquet import ops_of_table, read_sealed
from harness.verdict.judge import checkers_of, load_model

GUESS_S: Final = 30.0
"""The time limit of `require_decided`."""
TRIAL_S: Final = 0.1
"""The time limit for a check that only finds out whether a checker can read the history."""
NAME_HELP: Final = "folder below the store (default: imported)"


def _record(file: Path, folder: RunFolder, history: History) -> RunRecord:
    """Return the record of an imported run, whose verdict is `unknown` until it is judged."""
    return RunRecord(
        run=folder.run_id,
        environment=IMPORTED,
        started=dt.datetime.now(tz=dt.UTC).isoformat(),
        wall_s=history[-1].time / NS_PER_S if history else 0.0,
        verdict=Verdict.UNKNOWN,
        digest=history.digest(),
        ops=len(history.pairs),
        versions={"harness": __version__, "python": platform.python_version()},
        warnings=(f"imported from {file.name}; `harness check` judges it",),
    )


def main(arguments: Sequence[str]) -> int:
    """Import one file: read all of it, then create a complete run folder with its history."""
    parser = Parser(
        prog="harness import",
        description="Turn a history that others recorded into a run that `harness check` and "
        "`harness report` can judge.\n"
        "Without --model, --elle and --workload its format and operations suggest the model.",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a history in any format that check reads"
    )
    judges = parser.add_mutually_exclusive_group()
    judges.add_argument("--model", metavar="M", help="the model that judges the history")
    judges.add_argument(
        "--elle",
        metavar="KIND",
        help="the kind of Elle's check: list-append, rw-register or closed-predicate",
    )
    judges.add_argument(
        "--workload",
        metavar="NAME",
        help="for a file of `harness export`: the workload of its run, whose checkers judge "
        "the history (default: register)",
    )
    parser.add_argument(
        "--independent",
        action=BooleanOptionalAction,
        help="whether values are [key value] pairs of jepsen.independent, and a report judges each "
        "key by itself (default: the shape of the values decides)",
    )
    parser.add_argument("--name", default="imported", metavar="NAME", help=NAME_HELP)
    add_store(parser)
    parsed = parser.parse_args(list(arguments))
    file: Path = parsed.file
    for kind in ("model", "elle"):
        if getattr(parsed, kind) is not None:
            require_kind(getattr(parsed, kind), kind)
    # raises `UsageError` if the workload's checkers cannot judge an imported history
    if parsed.workload is not None:
        checkers_of(Case(seed=0, target=IMPORTED, workload=parsed.workload, faults=()))
        if parsed.independent is not None:
            raise UsageError(
                "--independent is for the models of --model and --elle; checkers of a --workload "
                "judge whole runs"
            )
    source = open_history(file)
    history = History(source, foreign=True)
    if not history:
        raise HistoryError(
            f"{str(file)!r} holds no operation; a history has operations: name the file "
            "with the operations"
        )
    if history.reused:
        raise HistoryError(
            f"{file}: a process is used again after its operation ended in info, which a "
            f"stored run cannot hold; judge the file itself: harness check {file}"
        )
    model = parsed.model or parsed.elle
    try:
        if model is None and (
            parsed.workload is not None or any(op.process == HARNESS for op in history)
        ):
            case = _case_of_export(history, parsed.workload or "register")
        else:
            case = _case(file, history, model, parsed.independent, source.format)
        say(str(_stored(file, history, case, parsed.store, parsed.name)))
    except HistoryError as error:
        raise located_in(file, source, error) from error
    return 0


def _case_of_export(history: History, workload: str) -> Case:
    """Return the case of a history that the harness itself exported.

    Raises `HistoryError` if a checker of the workload cannot read the values.
    """
    case = Case(seed=0, target=IMPORTED, workload=workload, faults=())
    for checker in checkers_of(case):
        try:
            checker.check(history, case, time_limit_s=TRIAL_S)
        except HistoryError as error:
            raise HistoryError(
                f"{error}; the checkers of the workload {case.workload!r} read only exports of "
                "its runs: name another --workload, or the --model that judges it"
            ) from error
    return case


def _case(
    file: Path, history: History, model: str | None, independent: bool | None, format_: str
) -> Case:
    """Return the case of a foreign history, with the model that judges the history.

    Raises `HistoryError` if the model cannot read the values.
    """
    keys = 0
    try:
        name = model or model_for(format_, history, independent)
        judge = load_model(name)
        if model is None:
            require_decided(name, history, ModelSettings(independent=independent), GUESS_S)
        if independent or (independent is None and shape_of(history.pairs) is Shape.SURE):
            # Plain values of some models look like pairs of key and value. If such a history cannot
            # be judged by key, it is judged as a whole, unless the user chose `--independent`.
            with contextlib.nullcontext() if independent else contextlib.suppress(HistoryError):
                keys = _understood_by_key(history, judge)
        if not keys:
            judge.prepare(history, ModelSettings(independent=independent))
            return imported_case(name, independent=independent)
    except HistoryError:
        raise
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    why = "" if independent else "; if its values are not [key value] tuples, add --no-independent"
    note(f"harness: {counted(keys, 'independent key')}, each judged separately as {name}{why}")
    return imported_case(name, independent=True)


def _understood_by_key(history: History, judge: HistoryModel) -> int:
    for pair in history.pairs:
        if pair.invoke.value is None:
            raise HistoryError(
                f"op {pair.invoke.index} is {pair.invoke.f!r} without a key, which a stored run "
                "over independent keys cannot hold; judge the file itself: harness check "
                "--independent"
            )
    parts = split(history)
    if not parts:
        raise HistoryError("no client did anything, so there are no independent keys")
    settings = ModelSettings(independent=False)
    for part in parts.values():
        judge.prepare(part, settings)
    return len(parts)


def _stored(file: Path, history: History, case: Case, store: Path, name: str) -> Path:
    """Store an imported history as a run. If this fails, remove every folder that was created."""
    check_place(store, name)
    missing = [each for each in (store / name, store, *store.parents) if not each.exists()]
    folder = RunFolder(store, name, new_run_id(0), staged=True)
    try:
        folder.write_case(case)
        folder.seal(history)
        record = _record(file, folder, history)
        folder.finish(record)
        _require_readable(folder.path / "history.parquet", record.digest)
        return folder.publish(latest=True)
    except BaseException:
        folder.discard()
        # the folder may not be empty: another process may already use it
        with contextlib.suppress(OSError):
            for each in missing:
                each.rmdir()
        raise


def _require_readable(path: Path, digest: str) -> None:
    """Read the stored history back; raise `HistoryError` if it differs from the original."""
    if digest_of(ops_of_table(path, read_sealed(path)[0])) != digest:
        raise HistoryError("the stored history differs from the history in the file")
