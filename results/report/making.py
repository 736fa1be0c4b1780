"""From the tables of a report to its numbers, its page and its files, whatever the source."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from results.facts.schema import COLUMNS
from results.judging.problems import NO_LOSS
from results.lake.log.refusals import failure_of
from results.questions.engines import Engine, SqlEngine, open_engine, query_names
from results.questions.trends import Stored
from results.report.files import write_report

if TYPE_CHECKING:
    from results.judging.pipeline import Checked, Progress
    from results.questions.aggregate import Answers
    from results.report.populations import Addresses
    from results.report.summary import Summary

__all__ = ["Asked", "make_report", "register"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a report was asked for, once its runs are judged."""

    place: str  # the store or the lake, as it was named
    output: Path
    engine: str
    engine_why: str = ""  # empty: the user chose it
    spark_master: str | None = None
    baseline: str | None = None
    label: str | None = None
    most: int | None = None  # rows of what lists runs; all, and all tables, where it is none
    stored: Stored | None = None  # bytes by target, label and day, where that is known


def make_report(
    checked: Checked,
    asked: Asked,
    places: Addresses,
    *,
    crashed: int,
    opened: Engine | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Summary, Answers, Path]:
    """Aggregate and write; returns what was found and where the page is.

    A report that is asked for so many rows at `most` keeps no tables: what it read is kept already.
    `crashed` counts the runs of which nothing but a case is left; `opened` is the engine, where it
    has its tables already, and is closed. Raises `UsageError` for labels
    that no run has, and `InfrastructureError`.
    """
    from results.judging.pipeline import Progress
    from results.questions.aggregate import aggregate
    from results.report.content import sections
    from results.report.page import render
    from results.report.summary import summarise

    kept = checked.results_known + checked.results_new

    def say(stage: str, done: int, of: int) -> None:
        if progress is not None:
            step = Progress(
                stage=stage, done=done, units=of, cost_done=done, cost=of, noun="questions",
                kept=kept,
            )  # fmt: skip
            progress(step)

    of_files = _opened(asked, checked)
    with of_files if opened is None else contextlib.closing(opened) as engine:
        answers = aggregate(
            engine,
            baseline=asked.baseline,
            label=asked.label,
            most=asked.most,
            stored=asked.stored,
            asking=functools.partial(say, "answer"),
        )
    say("write", 0, 1)
    lost = [problem for problem in checked.problems if problem.kind not in NO_LOSS]
    summary = summarise(
        answers,
        store=asked.place,
        label=asked.label if asked.baseline is None else None,
        engine=asked.engine,
        engine_why=asked.engine_why,
        executor=checked.executor,
        crashed=crashed,
        not_judged=checked.runs_unjudged,
        unjudged=len(lost) + checked.problems_total - len(checked.problems),
        results_new=checked.results_new,
        results_known=checked.results_known,
        results_unsettled=checked.results_unsettled,
        check_cpu_s=checked.cpu_s,
        check_wall_s=checked.wall_s,
        problems=tuple((item.run, item.kind, item.text) for item in checked.problems),
        problems_total=checked.problems_total,
    )
    page = render(summary, sections(answers, places), query_names())
    try:
        tables = checked.tables if asked.most is None else {}
        path = write_report(asked.output, tables=tables, answers=answers.tables, page=page)
    except OSError as error:
        text = f"cannot write the report to {asked.output}: {error.strerror or error}"
        raise failure_of(error, f"{text}; choose another --output") from error
    return summary, answers, path


@contextlib.contextmanager
def _opened(asked: Asked, checked: Checked) -> Iterator[Engine]:
    """The engine, with a Spark session of its own where it needs one."""
    session = None
    if asked.engine == "spark":
        from results.spark.session import get_spark

        session = get_spark(asked.spark_master or "local[*]")
    try:
        engine = open_engine(asked.engine, spark_session=session)
        with contextlib.closing(engine):
            register(engine, checked)
            yield engine
    finally:
        if session is not None:
            session.stop()


def register(engine: SqlEngine, checked: Checked) -> None:
    """Have an engine know the tables of a report."""
    for name in COLUMNS:
        engine.register(name, checked.tables.get(name, ()), checked.counting.get(name, "true"))
