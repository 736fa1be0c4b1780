"""`harness report`: judge and aggregate a store or a lake, or make the page of one run.

The work is `results.judging.pipeline`'s (judging, facts) and `results.questions.aggregate`'s (SQL,
statistics); here are the command line and what is written where:

| below `STORE/.report/` | what                                        |
|------------------------|---------------------------------------------|
| report.html            | the page                                    |
| tables/NAME.parquet    | verdicts, and the facts of every run        |
| sql/NAME.sql           | the questions, as they were asked           |
| answers/NAME.parquet   | the answers, and the statistics about them  |
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.checking import CHECK_TIME_LIMIT_S, EXIT_CODES
from harness.cli.check_limit import add_check_limit
from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.project import project_store
from harness.cli.status_line import StatusLine
from harness.cli.styles import HEADLINE_STYLES, bar, indented, styled
from harness.errors import EXIT_INTERRUPTED, EXIT_UNKNOWN, UsageError, counted
from harness.plugins import Reporter
from harness.registry import load_plugin
from harness.store import load_run
from results.judging.pace import Pace
from results.judging.problems import SEED_WITHOUT_RUN, is_seen
from results.questions.engines import ENGINES
from results.report import REPORT_FOLDER
from results.report.files import accept_output
from results.report.lake_report import default_output, is_lake, report_lake
from results.report.making import Asked, make_report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from results.judging.pipeline import Checked, Progress
    from results.judging.problems import Problem, RunInfo
    from results.questions.aggregate import Answers
    from results.report.summary import Summary

__all__ = ["main", "report_store"]

JOBS_MAX: Final = 512
JSON_ROWS_MAX: Final = 1_000
PIPE_INTERVAL_S: Final = 2.0

EPILOG: Final = """examples:
  harness report store
  harness report store --baseline v1 --label v2
  harness report store --spark-master 'local[4]'
  harness report s3://team/lake --label v2
  harness report store/ddl-kill-leader/latest

exit codes, of the worst verdict: 0 valid or permitted, 1 invalid, then 255 crash, then 2 unknown
(also where something could not be judged); 254 usage"""


def main(arguments: Sequence[str]) -> int:
    """Report on a store, a lake or a run; the exit code is that of the worst verdict."""
    parsed = _parse(arguments)
    lake = is_lake(parsed.path)
    place, parsed.path = parsed.path, Path(parsed.path)
    if not lake and (parsed.path / "case.json").exists():
        return _report_run(parsed)
    _validate(parsed, lake=lake)
    progress = _Progress()
    try:
        report = _report_lake(place, parsed, progress) if lake else _report_store(parsed, progress)
    except KeyboardInterrupt:
        progress.finish()
        note(f"harness: interrupted; {progress.kept}, and the same command continues from there")
        return EXIT_INTERRUPTED
    finally:
        progress.finish()
    summary, answers, page = report
    if parsed.json:
        say(_json(summary, answers, page))
    else:
        from results.report.summary import text_of

        *lines, verdict = text_of(summary, answers, str(page))
        hanging = (indented(line.lstrip(), len(line) - len(line.lstrip())) for line in lines)
        say(*hanging, styled(verdict, HEADLINE_STYLES[summary.verdict]))
    return summary.exit_code


def _report_lake(
    uri: str, parsed: argparse.Namespace, progress: _Progress
) -> tuple[Summary, Answers, Path]:
    return report_lake(
        uri,
        output=parsed.output or default_output(uri),
        engine=parsed.engine,
        executor=parsed.executor,
        jobs=parsed.jobs,
        spark_master=parsed.spark_master,
        baseline=parsed.baseline,
        label=parsed.label,
        check_time_limit_s=parsed.check_time_limit,
        again=parsed.again,
        progress=progress,
    )


def _report_store(parsed: argparse.Namespace, progress: _Progress) -> tuple[Summary, Answers, Path]:
    return report_store(
        parsed.path,
        output=parsed.output or parsed.path / REPORT_FOLDER,
        engine=parsed.engine or ("spark" if parsed.spark_master is not None else "duckdb"),
        executor=parsed.executor,
        jobs=parsed.jobs,
        spark_master=parsed.spark_master,
        baseline=parsed.baseline,
        label=parsed.label,
        check_time_limit_s=parsed.check_time_limit,
        again=parsed.again,
        progress=progress,
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness report",
        description="Judge every run of a store or lake again, aggregate all, and write Parquet\n"
        "tables, SQL and a page; or, given a run's folder, write the page of that run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "path",
        nargs="?",
        metavar="STORE",
        help="a store, a lake (a folder, or s3://BUCKET/PREFIX), or a run's folder (default: the "
        "store of harness.toml, or ./store)",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="what answers the SQL (default: duckdb; spark with --spark-master)",
    )
    parser.add_argument(
        "--executor",
        choices=("auto", "inline", "pool", "spark"),
        default="auto",
        help="where checkers run (default: %(default)s: by the amount of work)",
    )
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="check and aggregate on Spark: local[N], local-cluster[W,C,M], spark://.., sc://..",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    parser.add_argument("--baseline", metavar="LABEL", help="compare with the runs of this label")
    parser.add_argument(
        "--label",
        metavar="LABEL",
        help="with --baseline: the label to compare; else: look at the runs of this label only",
    )
    add_check_limit(parser, "CPU seconds for each checker and history or key", searches=False)
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge anew what stayed unknown for want of time, memory or a worker",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where to (default: STORE/.report; of a lake elsewhere: ./lake-report)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parsed = parser.parse_args(list(arguments))
    parsed.path = parsed.path or project_store()
    return parsed


def _validate(parsed: argparse.Namespace, *, lake: bool) -> None:
    if not lake and not parsed.path.is_dir():
        raise UsageError(
            f"{str(parsed.path)!r} is not a folder; give a store (--store of `harness run`), "
            "a run's folder below it, or a lake"
        )
    if parsed.jobs is not None and not 1 <= parsed.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs is {parsed.jobs}; it must be in 1 .. {JOBS_MAX}")
    if parsed.spark_master is not None and (
        parsed.engine == "duckdb" and parsed.executor in {"inline", "pool"}
    ):
        raise UsageError(
            f"--spark-master means nothing to --engine duckdb with --executor {parsed.executor}; "
            "leave one of them out"
        )
    if parsed.baseline is not None and parsed.baseline == parsed.label:
        raise UsageError(f"--baseline and --label are both {parsed.label!r}; compare two labels")
    if parsed.output is not None:
        accept_output(parsed.output)


def _report_run(parsed: argparse.Namespace) -> int:
    """The page of one run, by the reporter that `harness run` uses, too."""
    given = [
        flag
        for flag in ("engine", "spark_master", "jobs", "baseline", "label", "output")
        if getattr(parsed, flag) is not None
    ]
    given += [flag for flag in ("again", "json") if getattr(parsed, flag)]
    if given:
        flag = given[0].replace("_", "-")
        raise UsageError(f"--{flag} means nothing to one run; leave it out, or give a store")
    reporter: Reporter = load_plugin("reporters", "page")
    page = reporter.write(parsed.path)
    say(f"page    {page}")
    run = load_run(parsed.path)
    if run.note is not None:
        note(f"harness: {run.note}")
    if run.record is None or run.foreign:
        return EXIT_UNKNOWN
    return EXIT_CODES[run.record.verdict]


def report_store(
    store: Path,
    *,
    output: Path,
    engine: str = "duckdb",
    executor: str = "auto",
    jobs: int | None = None,
    spark_master: str | None = None,
    baseline: str | None = None,
    label: str | None = None,
    check_time_limit_s: float = CHECK_TIME_LIMIT_S,
    again: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Summary, Answers, Path]:
    """Judge, aggregate and write; returns what was found and where the page is.

    Raises `UsageError` for labels that no run has or an empty store, and `InfrastructureError`.
    """
    from results.judging.budgets import Budget
    from results.judging.pipeline import check_store
    from results.report.populations import Places

    checked = check_store(
        store,
        executor=executor,
        jobs=jobs,
        spark_master=spark_master if executor in {"auto", "spark"} else None,
        budget=Budget(cpu_s=check_time_limit_s),
        label=label if baseline is None else None,
        again=again,
        accept=functools.partial(_accept_runs, baseline=baseline, label=label),
        progress=progress,
    )
    if not checked.runs and not checked.problems:
        raise UsageError(f"{str(store)!r} holds no run; give the --store of finished runs")
    asked = Asked(
        place=str(store),
        output=output,
        engine=engine,
        spark_master=spark_master,
        baseline=baseline,
        label=label,
    )
    crashed = _crashed(store, checked)
    unjudged = checked.runs_unjudged - sum(problem.kind == "history" for problem in crashed)
    return make_report(
        msgspec.structs.replace(checked, runs_unjudged=unjudged),
        asked,
        Places(store, output),
        crashed=len({problem.run for problem in crashed}),
        progress=progress,
    )


def _accept_runs(runs: Sequence[RunInfo], *, baseline: str | None, label: str | None) -> None:
    from results.questions.baseline import accept_labels

    accept_labels({info.label for info in runs}, baseline=baseline, label=label)


def _crashed(store: Path, checked: Checked) -> list[Problem]:
    """The problems of runs that left their case and nothing else."""
    return [
        problem
        for problem in checked.problems
        if problem.kind == SEED_WITHOUT_RUN
        or (problem.kind == "history" and _only_a_case(_folder_of(store, problem.run)))
    ]


def _folder_of(store: Path, run: str) -> Path:
    """The folder of the run `NAME/RUN`; the store may be the folder of one name, too."""
    beside = store / run.rpartition("/")[2]
    return beside if is_seen(beside / "case.json") else store / run


def _only_a_case(folder: Path) -> bool:
    """What a crashed seed of a soak leaves: its case, so that it can be run again."""
    return is_seen(folder / "case.json") and not any(
        is_seen(folder / name) for name in ("history.parquet", "history", "ops.log")
    )


def _json(summary: Summary, answers: Answers, page: Path) -> str:
    """One object: the summary, and every answer up to a bound."""
    found = {
        name: table.slice(0, JSON_ROWS_MAX).to_pylist() for name, table in answers.tables.items()
    }
    cut = {
        name: answers.total(name) - len(found[name])
        for name in answers.tables
        if answers.total(name) > len(found[name])
    }
    return msgspec.json.encode(
        {
            "schema_version": 1,
            **msgspec.to_builtins(summary),
            "page": str(page),
            "answers": found,
            "rows_not_shown": cut,
        }
    ).decode()


class _Progress:
    """A bar and what is left on a terminal, a line on stderr now and then elsewhere."""

    def __init__(self) -> None:
        self._status = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S, draw=self._drawn)
        self._pace = Pace()
        self._found: Progress | None = None
        self._text = "looking for runs"
        if self._status.terminal:
            self._status.show(self._text)

    def __call__(self, found: Progress) -> None:
        begun = None if self._found is None else self._found.stage
        named_first = found.stage == "again" != begun
        self._found, self._text = found, self._pace.line(found)
        if not self._status.terminal and (named_first or self._status.due_s() is not None):
            self._status.show(self._text)

    def _drawn(self) -> RenderableType:
        from rich.console import Group

        found = self._found
        done, cost = (0, 1) if found is None else (found.cost_done, found.cost)
        # What is left is named in lines of its own, so that its name is not cut.
        head, *left = self._text.split(" left: ")
        text = styled(f"{head} left:" if left else head)
        return Group(
            bar(done, cost, text), *(indented(unit) for unit in "".join(left).split("; ") if unit)
        )

    @property
    def kept(self) -> str:
        """What an interrupt leaves, in words."""
        count = 0 if self._found is None else self._found.kept
        return f"{counted(count, 'result')} {'is' if count == 1 else 'are'} kept"

    def finish(self) -> None:
        self._status.finish()
