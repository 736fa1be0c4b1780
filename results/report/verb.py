"""The command `harness report`, which summarises a store or a lake, or makes one run's page.

This module is the command line; `results.report.report` does the work. The files of a report:

| below `STORE/.report/` | content                                                    |
|------------------------|------------------------------------------------------------|
| report.html            | the page                                                   |
| tables/NAME.parquet    | verdicts and facts of every run (only a store with DuckDB) |
| sql/NAME.sql           | the SQL text of the questions                              |
| answers/NAME.parquet   | the answers, and the statistics about them                 |
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.cli.check.limit import add_check_limit
from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.project import known_failures, project_store
from harness.cli.status_line import StatusLine
from harness.cli.styles import HEADLINE_STYLES, bar, indented, styled
from harness.errors import EXIT_INTERRUPTED, EXIT_UNKNOWN, UsageError, choices_near, counted
from harness.plugins import Reporter
from harness.registry import load_plugin
from harness.store import load_run
from harness.verdict.judge import EXIT_CODES
from results.facts.setting import IGNORABLE
from results.judging.pace import Pace
from results.lake.log.refusals import is_seen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from results.judging.pipeline import Progress
    from results.questions.aggregate import Answers
    from results.report.summary import Summary

JOBS_MAX: Final = 512
JSON_ROWS_MAX: Final = 1_000
PIPE_INTERVAL_S: Final = 2.0

EPILOG: Final = """examples:
  harness report store
  harness report store --baseline v1 --label v2
  harness report store --baseline good --label buggy --ignore bugs
  harness report store --spark-master 'local[4]'
  harness report s3://team/lake --label v2
  harness report store/ddl-kill-leader/latest

exit codes, by the worst outcome: 1 invalid (also of a run with --bug, which the headline calls
expected), else 255 crash, else 2 unknown (also if something could not be judged), else 0 valid or
permitted; 254 usage"""


def main(arguments: Sequence[str]) -> int:
    """Report on a store, a lake or a run; return the exit code of the worst outcome."""
    parsed = _parse(arguments)
    if is_seen(Path(parsed.path) / "case.json"):
        return _report_run(parsed)
    from results.report.report import report

    _validate(parsed)
    ignored = _ignored(parsed)
    progress = _Progress()
    try:
        summary, answers, page = report(
            parsed.path,
            output=parsed.output,
            engine=parsed.engine,
            executor=parsed.executor,
            jobs=parsed.jobs,
            spark_master=parsed.spark_master,
            baseline=parsed.baseline,
            label=parsed.label,
            ignore=ignored,
            check_time_limit_s=parsed.check_time_limit,
            again=parsed.again,
            known=known_failures(parsed.known),
            progress=progress,
        )
    except KeyboardInterrupt:
        progress.finish()
        note(f"harness: interrupted; {progress.kept}, and the same command continues the report")
        return EXIT_INTERRUPTED
    finally:
        progress.finish()
    if parsed.json:
        say(_json(summary, answers, page))
    else:
        from results.report.summary import EXPECTED, text_of

        *lines, verdict = text_of(summary, answers, str(page))
        hanging = (indented(line.lstrip(), len(line) - len(line.lstrip())) for line in lines)
        style = "permitted" if summary.verdict == EXPECTED else summary.verdict
        say(*hanging, styled(verdict, HEADLINE_STYLES[style]))
    return summary.exit_code


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
        choices=("duckdb", "spark"),
        help="engine that answers the SQL questions (default: duckdb; spark with --spark-master)",
    )
    parser.add_argument(
        "--executor",
        choices=("auto", "inline", "pool", "spark"),
        default="auto",
        help="where checkers run (default: %(default)s, which decides by the amount of work)",
    )
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="check and aggregate on Spark: local[N], local-cluster[W,C,M], spark://.., sc://..",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="worker processes (default: one per core)"
    )
    parser.add_argument("--baseline", metavar="LABEL", help="compare with the runs of this label")
    parser.add_argument(
        "--label",
        metavar="LABEL",
        help="with --baseline: the label to compare; without: report only on runs of this label",
    )
    parser.add_argument(
        "--ignore",
        metavar="PARTS",
        help="with --baseline: also compare runs whose cases differ in these parts "
        f"(comma-separated; of {', '.join(IGNORABLE)})",
    )
    add_check_limit(parser, "CPU seconds for each checker and history or key", searches=False)
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge runs again that are unknown for lack of time, memory or a worker",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the report (default: STORE/.report; for a lake in a bucket: ./lake-report)",
    )
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="file with known failures and their tickets, as [[known]] tables (default: "
        "harness.toml)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parsed = parser.parse_args(list(arguments))
    parsed.path = parsed.path or str(project_store())
    return parsed


def _validate(parsed: argparse.Namespace) -> None:
    from results.report.files import accept_output
    from results.report.report import is_lake

    if not is_lake(parsed.path) and not Path(parsed.path).is_dir():
        raise UsageError(
            f"{parsed.path!r} is not a folder; give a store (--store of `harness run`), "
            "a run's folder below it, or a lake"
        )
    if parsed.jobs is not None and not 1 <= parsed.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs is {parsed.jobs}; it must be in 1 .. {JOBS_MAX}")
    if parsed.spark_master is not None and (
        parsed.engine == "duckdb" and parsed.executor in {"inline", "pool"}
    ):
        raise UsageError(
            f"--spark-master has no effect with --engine duckdb and --executor {parsed.executor}; "
            "leave one of them out"
        )
    if parsed.baseline is not None and parsed.baseline == parsed.label:
        raise UsageError(f"--baseline and --label are both {parsed.label!r}; compare two labels")
    if parsed.output is not None:
        accept_output(parsed.output)


def _ignored(parsed: argparse.Namespace) -> list[str]:
    if parsed.ignore is None:
        return []
    if parsed.baseline is None:
        raise UsageError("--ignore only affects the comparison of two labels; give --baseline too")
    names = parsed.ignore.split(",")
    for name in names:
        if name not in IGNORABLE:
            raise UsageError(f"--ignore has {name!r}; {choices_near(name, IGNORABLE)}")
    return [name for name in IGNORABLE if name in names]


def _report_run(parsed: argparse.Namespace) -> int:
    flags = [
        flag
        for flag in (
            *("engine", "spark_master", "jobs", "baseline", "label", "ignore", "output", "known"),
        )
        if getattr(parsed, flag) is not None
    ]
    flags += [flag for flag in ("again", "json") if getattr(parsed, flag)]
    if flags:
        flag = flags[0].replace("_", "-")
        raise UsageError(f"--{flag} has no effect for a single run; leave it out, or give a store")
    reporter: Reporter = load_plugin("reporters", "page")
    page = reporter.write(Path(parsed.path))
    say(f"page    {page}")
    run = load_run(Path(parsed.path))
    if run.note is not None:
        note(f"harness: {run.note}")
    if run.record is None or run.foreign:
        return EXIT_UNKNOWN
    return EXIT_CODES[run.record.verdict]


def _json(summary: Summary, answers: Answers, page: Path) -> str:
    tables = {
        name: table.slice(0, JSON_ROWS_MAX).to_pylist() for name, table in answers.tables.items()
    }
    cut = {
        name: answers.total(name) - len(tables[name])
        for name in answers.tables
        if answers.total(name) > len(tables[name])
    }
    return msgspec.json.encode(
        {
            "schema_version": 1,
            **msgspec.to_builtins(summary),
            "page": str(page),
            "answers": tables,
            "rows_not_shown": cut,
        }
    ).decode()


class _Progress:
    """Shows progress: on a terminal as a bar with the remaining work, else as lines on stderr."""

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

        planned = self._found
        done, cost = (0, 1) if planned is None else (planned.cost_done, planned.cost)
        # Each remaining item gets a line of its own, so that no name is cut.
        head, *left = self._text.split(" left: ")
        text = styled(f"{head} left:" if left else head)
        return Group(
            bar(done, cost, text), *(indented(unit) for unit in "".join(left).split("; ") if unit)
        )

    @property
    def kept(self) -> str:
        """The number of stored results, in words, for the message after an interrupt."""
        count = 0 if self._found is None else self._found.kept
        return f"{counted(count, 'result')} {'is' if count == 1 else 'are'} kept"

    def finish(self) -> None:
        self._status.finish()
