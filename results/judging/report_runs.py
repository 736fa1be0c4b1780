"""The runs of a report, with their stored results, their pending work, and the final tables.

SQL (`results.judging.pending_results`) joins the lake's `runs` with the ids of the results that
each run requires, subtracts the results in the result lake, and cuts the rest into pieces of about
equal cost. A unit of work is one piece, with the files that hold its runs. So no Python loop visits
every run.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from harness.errors import InfrastructureError, counted
from results.facts.problems import NO_LOSS, PROBLEMS_MAX, Problem, Problems
from results.judging.budgets import Budget
from results.judging.markers import STARTED
from results.judging.pending_results import PendingResults, Place
from results.judging.report_tables import write_tables
from results.judging.required_results import Kind, Wants, wants_of
from results.judging.result_ids import Check, Registry
from results.judging.result_lake import ResultLake
from results.judging.verdict_rows import no_verdict, table_of
from results.judging.work_units import RoundConfig, Unit
from results.lake.log.duckdb_views import at_hand, readable
from results.lake.log.files import MAIN, RESULTS, FileRef, Partition
from results.lake.log.snapshot import Snapshot
from results.lake.tables.rebuild import HISTORY_TABLES

LOST: Final = "no worker finished it, so its results are missing; run the report again"
UNITS_A_SLOT: Final = 4
"""Units per worker. With this many, all workers end at about the same time."""
UNIT_RUNS_MAX: Final = 1_000
UNIT_LINES_MAX: Final = 1 << 20
UNIT_COST_MAX: Final = 30_000_000_000
UNIT_COST_MIN: Final = 1_000_000_000
_READ: Final = (MAIN, *HISTORY_TABLES)


class Plan(NamedTuple):
    """The pending work, and the numbers of required and of stored results."""

    units: tuple[Unit, ...]
    wanted: int
    stored: int


class Gathered(NamedTuple):
    """The tables of a report, as files."""

    tables: dict[str, tuple[Path, ...]]  # files by table; a file may have additional columns
    counting: dict[str, str]
    unsettled: int  # number of results left unknown: time or memory ran out, or the worker died
    unjudged: int  # number of runs without any result; no table has a row of such a run


class ReportRuns:
    """The runs of a lake, or of one of its labels, in one report."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        budgets: Sequence[Budget],
        label: str | None = None,
        checkers: Sequence[str] | None = None,
        facts: bool = True,
        slots: int = 1,
        wanted: Callable[[Kind], Wants] | None = None,
        results: Snapshot | None = None,
    ) -> None:
        """Read the runs of `snapshot` and the results that they require.

        `budgets` are the levels of budget, tried in turn. `checkers` replaces the checkers of the
        cases. `wanted` returns the required results of a kind of run (default: `wants_of`). `slots`
        is the number of units in progress at once. `results` is a snapshot of the result lake.
        """
        self.problems = Problems()
        self.place = snapshot.place
        self._snapshot = snapshot = snapshot.of_label(label)
        self._label = label
        self.results = f"{self.place.uri}/{RESULTS}"
        self._budgets = budgets
        self._facts = facts
        self._slots = slots
        self._scratch = Path(tempfile.mkdtemp(prefix="harness-report-"))
        self._found = results
        self._given = results is not None
        self._appended = False
        self.lacking: tuple[tuple[Problem, ...], int] = ((), 0)
        """The first few runs that lack a result, and the number of such runs; set by `gather`."""
        self._files: dict[Partition, dict[str, list[FileRef]]] = {}
        for table in _READ:
            for file in snapshot.files(table):
                self._files.setdefault(file.partition, {}).setdefault(table, []).append(file)
        self._pending = PendingResults(snapshot, self.problems, self._scratch)
        self._pending.read_runs()
        self._pending.read_wants(
            wanted
            or functools.partial(
                wants_of, registry=Registry(), budgets=budgets, checkers=checkers, facts=facts
            )
        )

    @property
    def runs(self) -> int:
        return self._pending.number("SELECT count(*) FROM these")

    def read_known(self) -> None:
        if not self._given:
            results = ResultLake.beside(self.place.uri, self.place.options)
            self._found = None if results is None else results.snapshot().of_label(self._label)
        if self._found is not None:
            self._found = at_hand(self._found, self._scratch / "results")
        self._pending.read_known(self._found)

    def left(self) -> int:
        """Return the number of results that are still pending."""
        self._pending.read_todo()
        return self._pending.number("SELECT count(*) FROM todo")

    def ranges(self, above: int, size_of: Callable[[int], int]) -> list[tuple[Any, ...]]:
        """Return pending work above budget level `above`, in ranges (`PendingResults.ranges`)."""
        self._pending.read_todo()
        self._pending.skip(above, ("", -1), None)
        return self._pending.ranges(size_of)

    def units(self, above: int, first: Place, end: Place | None) -> tuple[Unit, ...]:
        """Return the units of pending work above budget level `above` in places `[first, end)`."""
        self._pending.read_todo()
        self._pending.skip(above, first, end)
        return self._cut(UNIT_COST_MAX)

    def forget_unsettled(self, before: str = "infinity") -> None:
        """Treat unsettled results older than the time `before` as missing, to make them again."""
        self.read_known()
        self._pending.ignore_unsettled(before)

    def plan(self) -> Plan:
        self.read_known()
        wanted, stored = self._pending.read_todo()
        share = self._pending.cost_left() // (self._slots * UNITS_A_SLOT)
        return Plan(self._cut(min(UNIT_COST_MAX, max(UNIT_COST_MIN, share))), wanted, stored)

    def _cut(self, cost: int) -> tuple[Unit, ...]:
        pieces = self._pending.cut(cost=cost, runs=UNIT_RUNS_MAX, lines=UNIT_LINES_MAX)
        checkers = self._pending.checkers_of_ids()
        return tuple(self._unit(checkers, *piece) for piece in pieces)

    def _unit(self, checkers: Mapping[int, str], *piece: Any) -> Unit:
        target, label, day, level, cs, runs, batches, lines, cost = piece
        wanted = set(batches)
        files = self._files[target, label, day]
        ids = self._pending.ids
        return Unit(
            files={
                table: tuple(
                    file.name
                    for file in files.get(table, ())
                    if file.first_run <= runs[-1]
                    and file.last_run >= runs[0]
                    and (file.batch is None or file.batch in wanted)
                )
                for table in _READ
            },
            runs=tuple(runs),
            checks=tuple(Check(checkers[c], ids[c]) for c in cs if c in checkers),
            facts_id=next((ids[c] for c in cs if c not in checkers), None),
            budget=self._budgets[level - 1],
            n_ops=lines,
            cost=cost,
        )

    def begin(self, *, limit_memory: bool) -> RoundConfig:
        self._result_lake()
        return RoundConfig(
            uri=self.place.uri,
            scratch=str(self._scratch),
            round=uuid.uuid4().hex,
            since_s=time.time(),
            limit_memory=limit_memory,
        )

    def _result_lake(self) -> ResultLake:
        lake = ResultLake.beside(self.place.uri, self.place.options, create=True)
        assert lake is not None
        return lake

    def end(self) -> None:
        """End a round. Later plans do not repeat the units of the last plan."""
        self._appended = True
        self._pending.note_tried()
        shutil.rmtree(self._scratch / STARTED, ignore_errors=True)

    def lose(self, unit: Unit) -> None:
        """Add a problem for a unit that no worker could finish."""
        text = f"{LOST} (this also affects {len(unit.runs) - 1} runs after it)"
        self.problems.add(Problem(unit.key, "lost", text))

    def gather(self) -> Gathered:
        """Gather the tables of all results as files. Some are in a folder that `close` removes."""
        if self._appended and self._result_lake().tidy(self._label):
            self.read_known()
        self._pending.choose()
        self._refuse_damaged()
        self._name_missing()
        folder = self._scratch / "tables"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._pending.connection.register("stand_ins", self._stand_ins())
        with readable(self.place.uri):
            tables, counting = write_tables(
                self._pending, self._snapshot, self._found, folder, facts=self._facts
            )
        unsettled = self._pending.number("SELECT count(*) FROM chosen WHERE unsettled")
        unjudged = self._pending.number(
            "SELECT count(*) FROM these WHERE n NOT IN (SELECT n FROM chosen)"
        )
        self._pending.forget()
        return Gathered(tables, counting, unsettled, unjudged)

    def _refuse_damaged(self) -> None:
        """Raise an error if a verdict's row is missing, because the run would count as valid."""
        lost = self._pending.verdicts_without_rows(self._found) if self._found else 0
        if lost:
            raise InfrastructureError(
                f"{counted(lost, 'verdict')} in {self.results} lost their rows: remove this "
                "folder, and the next report judges the runs again"
            )

    def _name_missing(self) -> None:
        rows = self._pending.rows(
            """
            SELECT run, any_value(checker), count(*) OVER () FROM missing WHERE NOT gone
            GROUP BY run ORDER BY run LIMIT ?
            """,
            [PROBLEMS_MAX],
        )
        self.lacking = (
            tuple(lost_of(run, checker) for run, checker, _ in rows),
            rows[0][2] if rows else 0,
        )
        name_lacking(self.problems, *self.lacking)

    def _stand_ins(self) -> pa.Table:
        """Return one substitute row per checker in `missing`, for all its missing verdicts."""
        names = self._pending.rows(
            "SELECT DISTINCT checker FROM missing WHERE checker IS NOT NULL ORDER BY checker"
        )
        rows = [table_of([no_verdict(name)], "", "") for (name,) in names]
        return pa.concat_tables([table_of([], "", ""), *rows])

    def spill(self) -> Path:
        """Return a folder to which queries may spill. `close` removes it."""
        return self._scratch / "spilled-by-questions"

    def close(self) -> None:
        self._pending.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def lost_of(run: str, checker: str | None) -> Problem:
    """Return the problem of a run that lacks the verdict of `checker` (`None`: its facts)."""
    what = "its facts" if checker is None else f"the verdict of {checker}"
    return Problem(run, "lost", f"{what} could not be computed; run the report again")


def name_lacking(problems: Problems, lost: Sequence[Problem], total: int) -> None:
    """Add the problems in `lost`, except for runs that another problem already counts as lost."""
    named = {item.run for item in problems.kept if item.kind not in NO_LOSS}
    for problem in lost:
        if problem.run not in named:
            problems.add(problem)
    problems.total += total - len(lost)
