"""Judges the runs of a unit of work, in every executor, and appends the results.

The runs of a unit are read one by one from its files (`results.lake.log.run_streams`). The worker
rebuilds each history, compares its digest, judges the run and extracts its facts. It appends the
results to the result lake every `APPEND_EVERY_S`, so that a killed worker loses little.

A stage (for example one check of a run) that kills its worker leaves a marker on this machine
(`results.judging.markers.Marker`). Before a worker tries such a stage again, it appends all its
results. After a second kill, the checker counts as crashed. A worker that resumes a unit first
looks up which of its results are already stored.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import gc
import hashlib
import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HarnessError, HistoryError, counted
from harness.ops import History
from harness.verdict.limits import SpentError, cpu_limit, memory_limit
from results.facts.extraction import extract, extract_rows
from results.facts.problems import Problem, Problems
from results.judging.by_key import judge_range, notes_of
from results.judging.markers import LIMITED, Marker
from results.judging.result_ids import Check
from results.judging.result_lake import ResultLake
from results.judging.staged_results import Found, RunOfLake, run_of
from results.judging.verdict_rows import (
    checker_named,
    crashed,
    judge_history,
    mark_of,
    table_of,
)
from results.judging.work_units import Done, RoundConfig, Unit
from results.lake.log.files import KEY, MAIN
from results.lake.log.location import Place
from results.lake.log.refusals import REFUSED, RefusedError
from results.lake.log.row_files import stored_schema
from results.lake.log.run_streams import runs_in
from results.lake.log.storage_errors import AgainError
from results.lake.tables.rebuild import HISTORY_TABLES, history_of
from results.lake.tables.schema import schema

APPEND_EVERY_S: Final = 60.0
SAY_EVERY_S: Final = 1.0
TRIES_MAX: Final = 3
"""Maximum number of attempts at a unit if the storage does not answer."""
COLLECTIONS: Final = (50_000, 20, 50)
"""Thresholds of Python's garbage collector. The defaults (700, 10, 10) slow checks by an eighth."""
CLOCKS_APART_S: Final = 3_600.0
"""The assumed maximum difference of two clocks. Files older than the round by more are ignored."""


def do_units(units: Iterable[Unit], *, config: RoundConfig) -> Generator[Done, None, None]:
    """Process units one after another in this process. A checker that crashes kills the caller."""
    with _collecting_seldom():
        yield from _done(units, config)


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Run the garbage collector rarely: it scans all objects, and finds no cycles in histories."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _done(units: Iterable[Unit], config: RoundConfig) -> Iterator[Done]:
    tools: _Tools | None = None
    for unit in units:
        begin_ns = time.process_time_ns()
        problems = Problems()
        limited = True  # if the unit fails, a retry may still settle its results
        try:
            tools = tools or _tools(config.uri, config.round)
            for number in range(TRIES_MAX):
                work = _UnitJudge(unit, config, tools, problems)
                try:
                    yield from work.run(begun=number > 0)
                    limited = work.limited
                    break
                except AgainError as error:
                    if number + 1 == TRIES_MAX:
                        problems.add(Problem(unit.key, "lost", str(error)))
        except RefusedError as error:
            problems.add(Problem(unit.key, REFUSED, str(error)))
        except HarnessError as error:
            problems.add(Problem(unit.key, "lost", str(error)))
        except Exception:  # noqa: BLE001 - one unit must not end the others
            problems.add(Problem(unit.key, "lost", traceback.format_exc().splitlines()[-1]))
        cpu_ns = time.process_time_ns() - begin_ns
        yield Done(unit.unit_id, cpu_ns, problems.kept, limited=limited)


class _Tools(NamedTuple):
    place: Place
    results: ResultLake


@functools.lru_cache(maxsize=1)
def _tools(uri: str, round_: str) -> _Tools:
    del round_  # a part of the cache's key, since another round may use other credentials
    results = ResultLake.beside(uri, {}, create=True)
    assert results is not None
    return _Tools(Place(uri), results)


class _UnitJudge:
    """Judges the runs of one unit, extracts their facts, and stores the results."""

    def __init__(
        self,
        unit: Unit,
        config: RoundConfig,
        tools: _Tools,
        problems: Problems,
    ) -> None:
        self.unit = unit
        self.config = config
        self.place, self.results = tools
        self.problems = problems
        self.found = Found()
        # (run, result id) of the results that an earlier attempt stored
        self.there: set[tuple[str, str]] = set()
        self.limited = False  # whether a budget may have left some verdict unknown
        self.put_s = self.said_s = time.monotonic()

    def run(self, *, begun: bool) -> Iterator[Done]:
        """Judge each run and extract its facts; yield progress about once per second."""
        unit = self.unit
        attempt = self._marker(unit.unit_id, "unit")
        if begun or attempt.begun or self.config.elsewhere:
            self.there = self._put_away()
            self.limited = bool(self.there)
        schemas = {name: stored_schema(schema(name)) for name in unit.files}
        checks = self._loadable()
        with attempt, self._putting():
            stream = runs_in(self.place, schemas, unit.files, unit.runs, key_range=unit.key_range)
            reading = self._marker(unit.unit_id, "rows")
            for number in range(len(unit.runs)):
                if reading.spent:
                    left = counted(len(unit.runs) - number, "run")
                    text = f"reading the run killed the worker twice; not judged: {left}"
                    self.problems.add(Problem(unit.runs[number], "history", text))
                    break
                with reading:
                    key, rows = next(stream)
                self._one(key, rows, checks)
                now_s = time.monotonic()
                if now_s - self.put_s >= APPEND_EVERY_S:
                    self._put()
                if now_s - self.said_s >= SAY_EVERY_S:
                    self.said_s = now_s
                    yield Done(unit.unit_id, 0, (), part=(number + 1) / (len(unit.runs) + 1))

    @contextlib.contextmanager
    def _putting(self) -> Iterator[None]:
        """At the end of the block, append the unsaved results, even if reading a file failed."""
        try:
            yield
        except (HarnessError, AgainError):
            self._put()
            raise
        self._put()

    def _put(self) -> None:
        marker = self._marker(self.unit.unit_id, "append")
        if self.found.results and marker.spent:
            runs = counted(len(self.found.results), "run")
            text = f"appending results of {runs} killed the worker twice"
            self.problems.add(Problem(self.unit.key, "lost", text))
        elif self.found.results:
            with marker:
                self.results.append(self.found.rows())
        self.found = Found()
        self.put_s = time.monotonic()

    def _put_away(self) -> set[tuple[str, str]]:
        """Return (run, result id) of results stored for the unit's runs since the round began."""
        runs = self.unit.runs
        oldest_ms = (self.config.since_s - CLOCKS_APART_S) * 1e3
        lake = self.results
        state = lake.patience.call(f"read {lake.main.uri}", lake.main.refresh)
        if not any(
            file.first_run <= runs[-1] and file.last_run >= runs[0] and file.modified_ms > oldest_ms
            for file in state.files.values()
        ):
            return set()
        names = [KEY, "results", "judged_at"]
        since = dt.datetime.fromtimestamp(self.config.since_s, dt.UTC)
        condition = pc.field(KEY).isin(list(runs)) & (pc.field("judged_at") >= since)
        rows = lake.dataset(MAIN).to_table(names, filter=condition).to_pylist()
        return {(row[KEY], result_id) for row in rows for result_id in row["results"]}

    def _loadable(self) -> list[Check]:
        """Return the checks whose checker is installed. Each other check becomes a problem."""
        results = []
        for check in self.unit.checks:
            try:
                checker_named(check.checker)
            except HarnessError as error:
                text = f"a worker cannot load {check.checker}: {error}"
                self.problems.add(Problem(self.unit.key, "checker", text))
            else:
                results.append(check)
        return results

    def _marker(self, *stage: str) -> Marker:
        name = hashlib.sha256("\n".join(stage).encode()).hexdigest()[:40]
        return Marker(Path(self.config.scratch), self.config.round, name)

    def _memory(self) -> contextlib.AbstractContextManager[None]:
        if not self.config.limit_memory:
            return contextlib.nullcontext()
        return memory_limit(self.unit.budget.memory_mib)

    def _one(self, key: str, rows: dict[str, pa.Table], checks: list[Check]) -> None:
        todo = [check for check in checks if (key, check.result_id) not in self.there]
        facts_id = self.unit.facts_id
        if facts_id is not None and (key, facts_id) in self.there:
            facts_id = None
        if not todo and facts_id is None:
            return
        # The marker's name has the range, because other units read other ranges of the run.
        reading = self._marker(key, "read", str(self.unit.key_range))
        try:
            if reading.spent:
                raise HistoryError("reading the run killed the worker twice")
            with self._stage(reading):
                (row,) = rows[MAIN].to_pylist() or (None,)
                if row is None:
                    raise HistoryError("the lake no longer has the row of the run")
                run = run_of(row)
                history = None
                if not run.key_ranges:
                    tables = {name: rows[name] for name in HISTORY_TABLES}
                    history = history_of(tables, digest=row["digest"])
        except (HarnessError, OSError, MemoryError) as error:
            self.problems.add(Problem(key, "history", str(error) or type(error).__name__))
            return
        for check in todo:
            self._judge(run, history, rows, check)
        if facts_id is not None:
            self._facts(run, history, rows, facts_id)

    def _found(
        self, run: RunOfLake, result_id: str, mark: str, tables: Mapping[str, pa.Table]
    ) -> None:
        self.limited = self.limited or mark == LIMITED
        self.found.add(run, result_id, mark, tables)

    @contextlib.contextmanager
    def _stage(self, marker: Marker) -> Iterator[None]:
        """Run a stage that may kill the worker. On a retry, first append all earlier results."""
        if marker.begun:
            self._put()
        with marker, self._memory():
            yield

    def _judge(
        self, run: RunOfLake, history: History | None, rows: dict[str, pa.Table], check: Check
    ) -> None:
        """Judge a whole run, or only the unit's range of the run's keys, by one checker."""
        marker = self._marker(run.key, check.result_id)
        name, budget = check.checker, self.unit.budget
        if marker.spent:
            verdicts = [crashed(name, len(rows["operations"]))]
        else:
            try:
                with self._stage(marker):
                    if history is not None:
                        verdicts = [judge_history(name, history, run.case, budget)]
                    else:
                        assert self.unit.key_range is not None
                        number = self.unit.key_range
                        verdicts = judge_range(name, run, number, rows, budget)
            except (HarnessError, MemoryError) as error:
                self.problems.add(Problem(run.key, "history", str(error) or type(error).__name__))
                return
        table = table_of(verdicts, run.key, check.result_id)
        self._found(run, check.result_id, mark_of(verdicts), {"verdicts": table})

    def _facts(
        self,
        run: RunOfLake,
        history: History | None,
        rows: dict[str, pa.Table],
        facts_id: str,
    ) -> None:
        marker = self._marker(run.key, facts_id)
        if marker.spent:
            text = "extracting the run's facts killed the worker twice"
            self.problems.add(Problem(run.key, "facts", text))
            return
        try:
            with self._stage(marker), cpu_limit(self.unit.budget.cpu_s):
                if history is not None:
                    tables = extract(run, history)
                else:
                    tables = self._facts_of_rows(run, rows)
        except HarnessError as error:
            self.problems.add(Problem(run.key, "history", str(error)))
        except SpentError:
            text = f"its facts took longer than {self.unit.budget.cpu_s:g} s of CPU"
            self.problems.add(Problem(run.key, "facts", text))
        except Exception as error:  # noqa: BLE001 - named, and the other runs go on
            self.problems.add(
                Problem(run.key, "facts", f"its facts cannot be extracted: {error!r}")
            )
        else:
            self._found(run, facts_id, "", tables)

    def _facts_of_rows(self, run: RunOfLake, rows: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """Extract the facts of a run over independent keys without loading its whole history."""
        (row,) = rows[MAIN].to_pylist()
        operations = rows["operations"]
        if len(operations) != row["ops"]:
            raise HistoryError(
                f"the lake has {len(operations)} of the run's {row['ops']} operations"
            )
        return extract_rows(
            run, operations, notes_of(rows), lines=row["lines"], end_ns=row["length_ns"]
        )
