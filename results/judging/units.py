"""The work of a report, the same in every executor: `check_units`.

Every unit's history is read once; each of its checkers judges it within the budget,
`results.facts.extraction` makes its tables, and each result is stored where it was made
(`results.judging.markers`), so that a task that is lost keeps what it finished and one that is
repeated does no harm. Back comes one small `Done` a unit: what it cost, and what could not be done.
Nothing that a history or a checker does escapes: a checker that raises is `unknown` with its
traceback, one that spends its budget `unknown` with the bound, one that killed its worker twice
`unknown: checker crashed`.

Functions here are module-level and take all they need as arguments, since Spark and the pool ship
them by name.
"""

from __future__ import annotations

import contextlib
import functools
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.case import Case
from harness.checking import judge_one, load_checker, traceback_of, was_limited
from harness.errors import HarnessError
from harness.limits import SpentError, cpu_limit, memory_limit
from harness.ops import CheckResult, History, Verdict
from harness.permits import permitted_in
from harness.signatures import SIGNATURE, begun_until, rule_of, signature
from harness.store import read_log, read_parquet
from results.facts.schema import schema
from results.judging.budgets import Budget
from results.judging.manifest import Check, Unit
from results.judging.markers import BROKEN, LIMITED, Marker, result_exists, write_result
from results.judging.problems import (
    SOURCE_LOG,
    Problem,
    Problems,
    RunInfo,
    scan_run,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Checkers",
    "Config",
    "Done",
    "Row",
    "check_units",
    "crashed",
    "judge_history",
    "mark_of",
    "no_verdict",
    "read_history",
    "table_of",
    "worst_mark",
]

COUNTEREXAMPLE_CHARS_MAX: Final = 1 << 16
REASON_CHARS_MAX: Final = 2_000
CHANGED: Final = "the run disappeared, or was changed, while it was judged; try again"
CRASHED: Final = "checker crashed: it killed its worker twice; --again has it tried once more"


class Config(msgspec.Struct, frozen=True, tag="store"):
    """What all units of one round share, of a store."""

    results: str  # the folder of stored results
    round: str  # counts attempts, see `Marker`
    limit_memory: bool  # whether this process may lower its own limit


class Row(msgspec.Struct, kw_only=True):
    """One row of the table `verdicts`; `limited` says that a budget left it unknown."""

    checker: str
    key: str | None = None
    verdict: str = Verdict.UNKNOWN.value
    reason: str = ""
    rule: str | None = None
    signature: str | None = None
    n_ops: int = 0
    configurations: int | None = None
    wall_ns: int = 0
    cpu_ns: int = 0
    permitted: int = 0
    error: str | None = None
    counterexample: str | None = None
    failed_ops: int | None = None
    limited: bool = False


class Done(msgspec.Struct, frozen=True):
    """One unit that came to an end, well or not: its cost, and what could not be done.

    Units of many runs say in between how far they are: a `part` below 1 is no end.
    """

    unit: str
    cpu_ns: int
    problems: tuple[Problem, ...]
    part: float = 1.0
    limited: bool = False  # of a lake: whether a budget may have cut something short
    memory_bytes: int = 0  # of its worker, while it is under way


def check_units(units: Iterable[Unit], *, config: Config) -> Iterator[Done]:
    """Do them, one after another."""
    checkers = Checkers()
    for unit in units:
        begin_ns = time.process_time_ns()
        problems = _do(unit, config, checkers)
        yield Done(unit.unit_id, time.process_time_ns() - begin_ns, problems)


class Checkers:
    """Plug-ins by name, looked up once: finding one means reading what all packages declare."""

    def __init__(self) -> None:
        self.load = functools.cache(load_checker)


def _do(unit: Unit, config: Config, checkers: Checkers) -> tuple[Problem, ...]:
    """Everything about one unit; returns what could not be done."""
    work = _Work(unit, config, checkers)
    try:
        work.run()
    except Exception:  # noqa: BLE001 - one unit must not end the others
        work.problem("lost", traceback.format_exc().splitlines()[-1])
    return work.problems.kept


class _Work:
    """One unit while it is done."""

    def __init__(self, unit: Unit, config: Config, checkers: Checkers) -> None:
        self.unit = unit
        self.checkers = checkers
        self.config = config
        self.results = Path(config.results)
        self.problems = Problems()

    def problem(self, kind: str, text: str) -> None:
        """Name what could not be done."""
        self.problems.add(Problem(self.unit.key, kind, text))

    def run(self) -> None:
        """Read, judge, extract."""
        checks = [c for c in self.unit.checks if not result_exists(self.results, c.result_id)]
        facts_id = self.unit.facts_id
        if facts_id is not None and result_exists(self.results, facts_id):
            facts_id = None
        checks = self._loadable(checks)
        if not checks and facts_id is None:
            return
        info = scan_run(Path(self.unit.folder), self.unit.name, self.unit.run, Problems())
        if info is None or info.digest != self.unit.digest:
            self.problem("history", CHANGED)
            return
        history = self._read(info)
        for check in checks:
            if history is None:
                break
            self._store(check, self._judge(history, info.case, check))
        if facts_id is not None and history is not None:
            self._facts(info, history, facts_id)

    def _read(self, info: RunInfo) -> History | None:
        """The history; `None` and a problem where it cannot be had."""
        reading = self._marker("read")
        if reading.spent:
            self.problem("history", "reading it killed the worker twice")
            return None
        try:
            with reading, self._memory():
                return read_history(info)
        except (HarnessError, OSError, MemoryError) as error:
            self.problem("history", str(error) or type(error).__name__)
            return None

    def _loadable(self, checks: list[Check]) -> list[Check]:
        """Those whose checker this process has: its lack is no result, and not kept."""
        found = []
        for check in checks:
            try:
                self.checkers.load(check.checker)
            except HarnessError as error:
                self.problem("checker", f"a worker cannot load {check.checker}: {error}")
            else:
                found.append(check)
        return found

    def _marker(self, stage: str) -> Marker:
        """Counts this unit's attempts: runs with equal histories share results, not deaths."""
        return Marker(self.results, self.config.round, f"{self.unit.unit_id}-{stage}")

    def _memory(self) -> contextlib.AbstractContextManager[None]:
        if not self.config.limit_memory:
            return contextlib.nullcontext()
        return memory_limit(self.unit.budget.memory_mib)

    def _judge(self, history: History, case: Case, check: Check) -> Row:
        """The row of one checker, whatever it does."""
        marker = self._marker(check.result_id)
        if marker.spent:
            return crashed(check.checker, len(history.pairs))
        with marker, self._memory():
            return judge_history(check.checker, history, case, self.unit.budget, self.checkers)

    def _store(self, check: Check, row: Row) -> None:
        table = table_of([row], self.unit.key, check.result_id)
        write_result(self.results, check.result_id, {"verdicts": table}, mark=mark_of([row]))

    def _facts(self, info: RunInfo, history: History, facts_id: str) -> None:
        from results.facts.extraction import extract

        marker = self._marker(facts_id)
        if marker.spent:
            self.problem("facts", "extracting its facts killed the worker twice")
            return
        try:
            with marker, self._memory(), cpu_limit(self.unit.budget.cpu_s):
                tables = extract(info, history)
        except HarnessError as error:
            self.problem("history", str(error))
        except SpentError:
            self.problem("facts", f"its facts took longer than {self.unit.budget.cpu_s:g} s of CPU")
        except Exception as error:  # noqa: BLE001 - named, and the other runs go on
            self.problem("facts", f"its facts cannot be extracted: {error!r}")
        else:
            write_result(self.results, facts_id, tables)


def mark_of(rows: Iterable[Row]) -> str:
    """The mark of a result of these rows, see `results.judging.markers`."""
    return worst_mark(
        LIMITED if row.limited else BROKEN if row.error is not None else "" for row in rows
    )


def worst_mark(marks: Iterable[str]) -> str:
    """The mark of a result of several parts: what a budget cut short is planned again."""
    found = {*marks}
    return LIMITED if LIMITED in found else BROKEN if BROKEN in found else ""


def crashed(checker: str, n_ops: int) -> Row:
    """The row of a checker that killed its worker twice."""
    return Row(checker=checker, reason=CRASHED, n_ops=n_ops, error=CRASHED)


def no_verdict(checker: str) -> Row:
    """Stands in for a result that could not be made; why is among the problems of the run."""
    return Row(checker=checker, reason="could not be judged: see the problems of this run")


def read_history(info: RunInfo) -> History:
    """The whole history of a run; raises `HistoryError`."""
    if info.source == SOURCE_LOG:
        ops, _ = read_log(info.folder / SOURCE_LOG)
        return History(ops)
    return read_parquet(info.folder / info.source)


def judge_history(
    name: str,
    history: History,
    case: Case,
    budget: Budget,
    checkers: Checkers,
    *,
    key: str | None = None,
) -> Row:
    """One checker over one history, within `budget`; whatever goes wrong becomes `unknown`."""
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    result = judge_one(checkers.load(name), history, case, budget, whole=key is None)
    row = _row_of(name, result, history, key)
    row.wall_ns = time.perf_counter_ns() - wall_ns
    row.cpu_ns = time.process_time_ns() - cpu_ns
    return row


def _row_of(name: str, result: CheckResult, history: History, key: str | None) -> Row:
    """The row of what a checker returned."""
    details = result.details
    configurations = details.get("configurations")
    row = Row(
        checker=name,
        key=key,
        verdict=result.verdict.value,
        reason=result.reason[:REASON_CHARS_MAX],
        n_ops=len(history.pairs),
        configurations=configurations if isinstance(configurations, int) else None,
        limited=was_limited(result),
        error=traceback_of(result),
    )
    if result.verdict is Verdict.PERMITTED:
        row.rule = rule_of(result)
        row.permitted = sum(permitted_in(result).values())
    if not result.verdict.holds:
        row.rule, row.signature = rule_of(result), details.get(SIGNATURE)
    if result.verdict is Verdict.INVALID:
        row.counterexample = _counterexample(result)
        if key is None:  # the history of one key does not know how many others there were
            row.failed_ops = begun_until(result, history)
    return row


def _counterexample(result: CheckResult) -> str:
    """Sentences and ops as JSON; sentences are left out from the end where they are too long."""
    explanation = list(result.explanation)
    while True:
        text = msgspec.json.encode(
            {
                "operations": list(result.operations[:1000]),
                "explanation": explanation,
                "left_out": len(result.explanation) - len(explanation),
            }
        ).decode()
        if len(text) <= COUNTEREXAMPLE_CHARS_MAX or not explanation:
            return text
        explanation = explanation[: len(explanation) // 2]


def table_of(rows: list[Row], run: str, result_id: str) -> pa.Table:
    """The rows as a table `verdicts`."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in schema("verdicts").names}
    for row in rows:
        if row.signature is None and not Verdict(row.verdict).holds:  # only its reason is known
            result = CheckResult(row.checker, Verdict.UNKNOWN, row.reason)
            row.rule, row.signature = rule_of(result), signature(result, History(()))
        for name, column in columns.items():
            if name not in {"run", "result_id"}:
                column.append(getattr(row, name))
    columns["run"] = [run] * len(rows)
    columns["result_id"] = [result_id] * len(rows)
    return pa.table(columns, schema=schema("verdicts"))
