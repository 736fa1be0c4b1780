"""`harness shrink RUN|CASE`: finds the smallest case that fails in the same way; keeps its run."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case, load_case, replay_command
from harness.cli.output import say
from harness.cli.parser import Parser, add_store, check_counts
from harness.cli.run.artefacts import REPORTERS_DEFAULT, chosen_reporters, make_artefacts
from harness.cli.run.verb import default_name
from harness.cli.shrink.progress import ShrinkProgress
from harness.cli.shrink.story import story
from harness.cli.styles import styled
from harness.errors import EXIT_VALID, InfrastructureError, UsageError
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.run.keep import SIM, KeptRun, run_and_keep
from harness.store import RunFolder, check_place, load_run, new_run_id, shrunk_name
from harness.support.atomic_file import replacing
from harness.support.interrupts import sigterm_interrupts
from harness.trials.shrink import Shrunk, shrink
from harness.trials.shrink.search import SEEDS_DEFAULT
from harness.trials.trials import Kind, Trials, kinds_in
from harness.verdict.limits import CHECK_TIME_LIMIT_S

CPU_S_DEFAULT: Final = 60.0
CPU_S_MIN: Final = 0.1
CPU_S_MAX: Final = 1e6
JOBS_MAX: Final = 512
SEEDS_MAX: Final = 1000
LABEL: Final = "shrunk"
"""The label of shrunk runs. Reports do not count labelled runs together with the runs of a soak."""
CASE_FILE: Final = "shrunk.case.json"
MEMORY: Final = ".trials"
EPILOG: Final = """examples:
  harness shrink store/ddl-partition-leader/latest
  harness shrink case.json --cpu 300
  harness shrink store/ddl-kill-leader/latest --checker catalog-invariants

The search runs in the simulation. It tries smaller variants of the case, each with several seeds,
and keeps a variant if the same checker reports the same rule. Every result is remembered, so
after an interrupt, or with a higher --cpu, the same command continues the search.

exit codes: 0 the case was shrunk, 254 usage, or the case does not fail, 255 crash"""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a shrink: a case, the kind of its failure if known, and where to store the run.

    `first` is the folder of the run that the case comes from; `None` if the case is a file.
    """

    case: Case
    kind: Kind | None
    store: Path
    name: str
    run: str
    case_file: Path
    first: Path | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a shrink: CPU seconds, worker processes, and seeds to try per smaller case."""

    cpu_s: float
    jobs: int
    seeds: int


def main(arguments: Sequence[str]) -> int:
    """Shrink the case, keep the run of the smallest case, and describe it; returns 0."""
    parsed = _parse(arguments)
    source = _source(parsed)
    limits = Limits(cpu_s=parsed.cpu, jobs=parsed.jobs, seeds=parsed.seeds)
    progress = None if parsed.quiet or parsed.json else ShrinkProgress(parsed.cpu)
    with sigterm_interrupts():
        shrunk, kept = shrink_and_keep(source, limits, progress)
    if parsed.json:
        say(msgspec.json.encode(as_json(source, shrunk, kept)).decode())
    else:
        say(*map(styled, report_lines(source, shrunk, kept)))
    return EXIT_VALID


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness shrink",
        description="Find the smallest case that fails in the same way as a run or a case file.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "path", type=Path, metavar="RUN|CASE", help="the folder of a run, or a case file"
    )
    parser.add_argument(
        "--cpu",
        type=float,
        default=CPU_S_DEFAULT,
        metavar="S",
        help="CPU seconds for the search (default: %(default)g)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="worker processes (default: one per core, here %(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS_DEFAULT,
        metavar="N",
        help="seeds with which each smaller variant is tried (default: %(default)s)",
    )
    parser.add_argument(
        "--checker",
        metavar="C",
        help="the checker whose failure must persist (default: the one with the worst finding)",
    )
    add_store(parser)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(arguments)
    check_counts(parsed, jobs=JOBS_MAX, seeds=SEEDS_MAX)
    if not CPU_S_MIN <= parsed.cpu <= CPU_S_MAX:
        raise UsageError(f"--cpu is {parsed.cpu:g}; it must be in {CPU_S_MIN} .. {CPU_S_MAX:g}")
    return parsed


def _source(parsed: argparse.Namespace) -> Source:
    path: Path = parsed.path
    if path.is_dir():
        return source_of_run(path, checker=parsed.checker)
    case = load_case(path)
    name = default_name(case)
    check_place(parsed.store, name)
    return Source(
        case=case,
        kind=None if parsed.checker is None else Kind(parsed.checker, ""),
        store=parsed.store,
        name=name,
        run=shrunk_name(new_run_id(case.seed)),
        case_file=path.absolute().parent / CASE_FILE,
    )


def source_of_run(path: Path, *, checker: str | None = None) -> Source:
    """Return the shrink's input for a stored run.

    Raises `UsageError` if no checker proved a failure of this run.
    """
    folder = path.resolve()
    stored = load_run(path)
    kinds = kinds_in(folder / "results.json")
    chosen = [kind for kind in kinds if checker in {None, kind.checker}]
    if not chosen:
        names = ", ".join(dict.fromkeys(kind.checker for kind in kinds))
        raise UsageError(
            f"the run {str(path)!r} has no proven failure"
            + (
                f" of the checker {checker!r}; --checker can be: {names}"
                if names
                else ", so there is nothing to shrink; give a run whose verdict is invalid"
            )
        )
    return Source(
        case=stored.case,
        kind=chosen[0],
        store=folder.parent.parent,
        name=folder.parent.name,
        run=shrunk_name(folder.name),
        case_file=folder / CASE_FILE,
        first=folder,
    )


def shrink_and_keep(
    source: Source, limits: Limits, progress: ShrinkProgress | None
) -> tuple[Shrunk, KeptRun]:
    """Shrink a case, store the shrunk run, and write its case file.

    Raises `UsageError` if the case does not fail, and `InfrastructureError` if the run or the file
    cannot be written.
    """
    _require_place(source.case_file)
    digest = hashlib.blake2b(source.case.encode(), digest_size=12).hexdigest()
    memory = source.store / MEMORY / f"{digest}.jsonl"
    try:
        with Trials(jobs=limits.jobs, cpu_s_max=limits.cpu_s, memory=memory) as trials:
            if progress is not None:
                progress.follow(trials)
            shrunk = shrink(
                trials,
                source.case,
                source.kind,
                seeds=limits.seeds,
                on_step=(lambda *_: None) if progress is None else progress.on_step,
                on_trial=(lambda: None) if progress is None else progress.show,
            )
    finally:
        if progress is not None:
            progress.finish()
    kept = _kept(source, shrunk)
    try:
        with replacing(source.case_file) as file:
            file.write(shrunk.case.encode().decode())
    except OSError as error:
        raise InfrastructureError(
            f"cannot write {source.case_file}: {error.strerror}; the case is in {kept.folder}"
        ) from error
    return shrunk, kept


def _require_place(case_file: Path) -> None:
    """Refuse a folder that cannot be written before the search, not after it."""
    if not os.access(case_file.parent, os.W_OK):
        raise UsageError(
            f"{str(case_file)!r} cannot be written, and the shrunk case belongs there; copy the "
            "run with its store, or the case file, to a folder that can be written"
        )


def _kept(source: Source, shrunk: Shrunk) -> KeptRun:
    """Run the shrunk case once more and keep the run; draw its page and the original's."""
    environment = load_plugin("environments", SIM)
    folder = RunFolder(source.store, source.name, source.run, staged=True, latest=False)
    kept = run_and_keep(
        plan_case(shrunk.case, environment),
        environment,
        lambda _outcome, _judgement: folder,
        run_id=source.run,
        time_limit_s=CHECK_TIME_LIMIT_S,
        label=LABEL,
    )
    if kept.outcome.stop_asked:
        raise KeyboardInterrupt
    if kept.unkept is not None:
        raise kept.unkept
    reporters = chosen_reporters(REPORTERS_DEFAULT)
    if kept.folder is not None:
        make_artefacts(kept.folder, reporters)
    if source.first is not None:
        make_artefacts(source.first, reporters)
    return kept


def report_lines(source: Source, shrunk: Shrunk, kept: KeptRun) -> list[str]:
    """Return the story of the shrunk run, followed by its paths and its replay command."""
    return story(shrunk, kept, places_of(source, kept))


def places_of(source: Source, kept: KeptRun) -> list[tuple[str, str]]:
    """Return the shrunk run's page and case file, and the command that replays it."""
    page = None if kept.folder is None else kept.folder / "report.html"
    places = [("page", _short(page))] if page is not None and page.is_file() else []
    case_file = _short(source.case_file)
    return [*places, ("case", case_file), ("replay", replay_command(case_file, SIM))]


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def as_json(source: Source, shrunk: Shrunk, kept: KeptRun) -> dict[str, Any]:
    """Return the shrunk run as plain JSON."""
    return {
        "schema_version": 1,
        "kind": str(shrunk.kind),
        "checker": shrunk.kind.checker,
        "rule": shrunk.kind.rule,
        "faults_before": len(shrunk.start.faults or ()),
        "faults": shrunk.faults,
        "operations": shrunk.operations,
        "seed": shrunk.case.seed,
        "trials": shrunk.runs,
        "cpu_s": round(shrunk.cpu_s, 2),
        "limit_reached": shrunk.exhausted,
        "steps": [step.words for step in shrunk.steps],
        "case": str(source.case_file),
        "run": None if kept.folder is None else str(kept.folder),
        "replay": replay_command(source.case_file, SIM),
        "story": report_lines(source, shrunk, kept),
    }
