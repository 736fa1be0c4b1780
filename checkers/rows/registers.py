"""Checks rows as registers, with one checker in real time and one in the order of timestamps.

Every operation of the history becomes one operation on each row that it wrote or saw. Two checkers
judge these operations under the same model:

* `linearizable-rows`, in **real time** (the order of op indices). It judges all writes, all reads,
  and the rows that scans of the mode `latest` saw at the leaders.
* `snapshot-scans`, in the **order of timestamps**: a write takes effect at its timestamp, and a
  read or scan with a timestamp sees exactly the writes at or before this timestamp. A write without
  an answer may have any timestamp above the highest timestamp that its process knew when it invoked
  the write.

The order of timestamps (`orders`) decides most rows, and a search decides the other rows.
"""

from __future__ import annotations

import abc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

import msgspec

from checkers.linearizability import (
    UNKNOWN,
    CheckOutcome,
    Failure,
    Limits,
    Result,
    check_operations,
)
from checkers.linearizability.partial import Fact
from checkers.linearizability.proof import OPERATIONS_MAX, Certificate, Told, convicted, judged
from checkers.rows.model import Row, RowInput, Rows, Seen
from checkers.rows.orders import order_by_timestamps
from checkers.rows.permits import PowerCuts, relaxed
from checkers.rows.problem import RowProblem, Writers, by_invocation, by_row, end_of, floors
from checkers.rows.reading import Look, RowsHistory, rows_history
from checkers.rows.words import sentence
from checkers.verdict.permitted import permitted_result
from checkers.verdict.search import Relaxed, rest_of_core, undecided
from harness.ops import CheckResult, History, Verdict
from harness.permits import LOST_AFTER_POWER_CUT, STALE_READ, Permit, permits_of
from harness.plugins import Checker

_Looks = Sequence[tuple[Look, list[tuple[str, Row]]]]
"""Answers of reads and scans, each with all rows that it covers (`None` for an absent row)."""
LOOKS_MAX: Final = 2_000_000
"""The maximum number of rows in all answers of reads and scans.

If a history has more, absent rows are not judged.
"""


Place = tuple[str, str]
"""A table and a key."""


def _with_writers(read: RowsHistory, place: Place, operations: Sequence[int]) -> list[int]:
    """Return `operations`, plus the writers of the values that they showed for the row at `place`.

    A power cut explains a contradiction only if it came between the operations. But a replica may
    still show a write that the cut undid on other nodes, so two reads long after the cut may
    contradict each other. Then only the writer, which is added here, came before the cut.
    """
    table, key = place
    writers, blamed = Writers(read), list(operations)
    for look in read.looks:
        if look.table == table and look.pair.invoke.index in operations:
            for column, value in look.rows.get(key) or ():
                wrote = writers.of((table, key, column), value)
                blamed += [part.pair.invoke.index for part, _ in wrote]
    return blamed


class _RowsChecker(Checker):
    """The common part of `LinearizableRows` and `SnapshotScans`: a search and its explanation."""

    api_version = 1
    name = ""
    order = ""

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case
        end_s = time.monotonic() + time_limit_s
        read = rows_history(history)
        looks = [(look, list(read.seen_by(look))) for look in read.looks if self._judges(look)]
        left_out = 0
        if sum(len(seen) for _, seen in looks) > LOOKS_MAX:
            left_out = sum(row is None for _, seen in looks for _, row in seen)
            looks = [
                (look, [(key, row) for key, row in seen if row is not None]) for look, seen in looks
            ]
        cuts, permits = PowerCuts(history), permits_of(history)
        excused: list[int] = []
        for place, contradiction in self._at_once(read, looks):
            if not cuts.explain(_with_writers(read, place, contradiction.operations)):
                return convicted(self.name, contradiction, {"looked": {"answers": len(looks)}})
            excused += contradiction.operations
        problem = self._problem(read, looks)
        result = self._judged(read, problem, end_s)
        if permits:
            result = self._under_permits(read, problem, result, permits, cuts, excused, end_s)
        if left_out:
            result.details["exempt"] = {"absent rows": left_out}
        return result

    def _under_permits(
        self,
        read: RowsHistory,
        problem: RowProblem,
        strict: CheckResult,
        permits: Mapping[str, Permit],
        cuts: PowerCuts,
        excused: Sequence[int],
        end_s: float,
    ) -> CheckResult:
        """Revise the result `strict` under permits. They are tried on each failing row in turn.

        If a row also fails under the permits, its invalid result is returned.
        """
        counts = Counter({LOST_AFTER_POWER_CUT: 1} if excused else {})
        blamed, result = list(excused), strict
        while result.verdict is Verdict.INVALID:
            table, key = result.details["failure"]["row"]
            place = (table, key)
            relaxed = self._relaxed(problem, place, cuts, end_s)
            if relaxed is None and cuts.explain(_with_writers(read, place, result.operations)):
                relaxed = Relaxed({LOST_AFTER_POWER_CUT: 1}, exhausted=True)
            if relaxed is None or (relaxed.counts is None and relaxed.exhausted):
                return result
            if relaxed.counts is None:
                return undecided(result)
            counts.update(relaxed.counts)
            blamed += result.operations if LOST_AFTER_POWER_CUT in relaxed.counts else ()
            blamed += [problem.pairs[number].invoke.index for number in relaxed.operations]
            problem = problem.without(place)
            result = self._judged(read, problem, end_s)
        if result.verdict is not Verdict.VALID or not counts:
            return result
        return permitted_result(
            strict, permits, counts, blamed[:OPERATIONS_MAX], {**strict.details}
        )

    def _relaxed(
        self, problem: RowProblem, place: tuple[str, str], cuts: PowerCuts, end_s: float
    ) -> Relaxed | None:
        """Search for an order of a row under permits; `None` if this checker has no such search."""
        del problem, place, cuts, end_s
        return None

    @abc.abstractmethod
    def _judges(self, look: Look) -> bool:
        """Return whether this checker judges the read or scan."""

    def _at_once(self, read: RowsHistory, looks: _Looks) -> Iterator[tuple[Place, Told]]:
        """Yield the rows for which two answers contradict each other, without any search."""
        del read, looks
        yield from ()

    @abc.abstractmethod
    def _problem(self, read: RowsHistory, looks: _Looks) -> RowProblem:
        """Return all operations on single rows, in the kind of time that this checker uses."""

    def _judged(self, read: RowsHistory, problem: RowProblem, end_s: float) -> CheckResult:
        model, operations = Rows(), problem.operations
        groups = model.partition(operations)
        orders = [order_by_timestamps(model, group) for group in groups]
        left = [
            o for group, order in zip(groups, orders, strict=True) if order is None for o in group
        ]
        outcome = CheckOutcome(
            result=Result.OK,
            reason="a legal order exists",
            witness=(),
            decided_by="the order of timestamps",
            steps=0,
            configurations=0,
            progress=sum(not operation.is_unknown for operation in operations),
            returns=sum(not operation.is_unknown for operation in operations),
        )
        if left:
            timeout_s = max(0.0, end_s - time.monotonic())
            outcome = check_operations(model, left, timeout_s=timeout_s, limits=self._limits)
        if outcome.result is Result.OK:
            assert outcome.witness is not None, "a linearizable history has an order"
            searched = iter(outcome.witness)
            outcome = replace(
                outcome,
                witness=tuple(next(searched) if order is None else order for order in orders),
            )

        def tell(failure: Failure, proof: Certificate) -> Told:
            del proof
            return self._tell(failure, read, problem)

        result = judged(self.name, model, operations, outcome, tell=tell, limits=self._limits)
        details = by_invocation(result.details, problem)
        if outcome.failure is not None and "failure" in details:
            details["failure"]["row"] = list(operations[outcome.failure.operation].input.place)
        details["rows"], details["rows_searched"] = len(groups), orders.count(None)
        return msgspec.structs.replace(result, details=details)

    def _tell(self, failure: Failure, read: RowsHistory, problem: RowProblem) -> Told:
        def said(number: int) -> str:
            operation = problem.operations[number]
            table, key = operation.input.place
            seen = operation.output.row if isinstance(operation.output, Seen) else None
            text = sentence(problem.pairs[number], read.name_of(table), key, seen)
            look, then = problem.looks.get(number), operation.input.then
            if look is not None and then is not None:
                text += (
                    f", and at its timestamp {sentence(look, read.name_of(table), key, then.row)}"
                )
            return text

        failing = said(failure.operation)
        states = sorted({survivor.state_text for survivor in failure.survivors})
        by_then = f": by then {' or '.join(states[:4])}" if states else ""
        text = [f"{failing}, but no order of the operations on this row {self.order}{by_then}."]
        core = {problem.pairs[number].invoke.index: said(number) for number in failure.core}
        numbers = (failure.operation, *failure.core)
        looks = [problem.looks[n].invoke.index for n in numbers if n in problem.looks]
        blamed = tuple(dict.fromkeys([problem.pairs[failure.operation].invoke.index, *core]))
        text += rest_of_core(blamed, core, minimal=failure.core_minimal)
        operation = problem.operations[failure.operation]
        without_look = operation.input._replace(then=None)
        fits = any(
            Rows().step(cast("Row", survivor.state), without_look, operation.said)[0]
            for survivor in failure.survivors
        )
        stale = not without_look.steps or (fits and without_look != operation.input)
        rule = "stale-row" if stale else "wrong-row-result"
        blamed = tuple(dict.fromkeys([blamed[0], *looks, *blamed]))
        return Told(failing, text, blamed[:OPERATIONS_MAX], rule)


class LinearizableRows(_RowsChecker, judges_prefixes=True):
    """Checks that each row is linearizable, by the leaders' answers to writes, reads and scans."""

    name = "linearizable-rows"
    doc = "writes of rows, reads, and scans of leaders are linearizable, row by row"
    order = "that respects real time allows it"

    def _judges(self, look: Look) -> bool:
        return look.is_latest

    def _relaxed(
        self, problem: RowProblem, place: tuple[str, str], cuts: PowerCuts, end_s: float
    ) -> Relaxed | None:
        facts, stale = dict(enumerate(problem.facts)), STALE_READ in cuts.permits
        row = problem.of_row(place)
        again = {each.id for each in row if cuts.during(problem.pairs[each.id])}
        return relaxed(row, facts, cuts.at, stale=stale, end_s=end_s, again=again)

    def _problem(self, read: RowsHistory, looks: _Looks) -> RowProblem:
        problem = RowProblem([], [], [])
        for part in read.parts:
            call = part.pair.invoke.index
            times = (call, end_of(part.pair) if part.is_known else None)
            for input_, output in by_row(part):
                fact = Fact(part.term, part.node)
                problem.add(part.pair, input_, output, times, part.timestamp, fact)
        for look, seen in looks:
            times = (look.pair.invoke.index, end_of(look.pair))
            for key, row in seen:
                input_, fact = RowInput((look.table, key)), Fact(look.term, look.node)
                problem.add(look.pair, input_, Seen(row), times, None, fact)
        return problem


class SnapshotScans(_RowsChecker):
    """Checks that each read or scan shows exactly the writes at or before its timestamp."""

    name = "snapshot-scans"
    doc = "scans show exactly the writes up to their timestamp"
    order = "by timestamps allows it"

    def _judges(self, look: Look) -> bool:
        return look.timestamp is not None

    def _at_once(self, read: RowsHistory, looks: _Looks) -> Iterator[tuple[Place, Told]]:
        first: dict[tuple[str, str, int | None], tuple[Look, Row]] = {}
        for look, seen in looks:
            for key, row in seen:
                other, before = first.setdefault((look.table, key, look.timestamp), (look, row))
                if before == row:
                    continue
                name = read.name_of(look.table)
                text = [
                    f"{sentence(other.pair, name, key, before)}.",
                    f"{sentence(look.pair, name, key, row)}.",
                    f"Both show the only state that exists at timestamp {look.timestamp}.",
                ]
                blamed = (look.pair.invoke.index, other.pair.invoke.index)
                conviction = Told(sentence(look.pair, name, key, row), text, blamed, "one-instant")
                yield (look.table, key), conviction

    def _problem(self, read: RowsHistory, looks: _Looks) -> RowProblem:
        problem = RowProblem([], [], [])
        floor = floors(read)
        stamps = {part.timestamp for part in read.parts} | {look.timestamp for look, _ in looks}
        ordered = sorted({0, *floor.values(), *(stamp for stamp in stamps if stamp is not None)})
        # Hybrid timestamps have more bits than the search or a float can represent, so they become
        # ranks. At each timestamp, writes come first, then looks (answers), then unknown writes of
        # processes that knew the timestamp. A write and a look of a row at one timestamp are
        # joined, since a tablet never uses a timestamp twice.
        writes: dict[tuple[Place, int], int | None] = {}
        rank = {stamp: 3 * place for place, stamp in enumerate(ordered)}
        for part in read.parts:
            after = rank[floor[part.pair.invoke.index]] + 2
            for input_, output in by_row(part):
                if part.timestamp is not None:
                    times = (rank[part.timestamp], rank[part.timestamp])
                    at_once = input_.place, part.timestamp
                    writes[at_once] = None if at_once in writes else len(problem.operations)
                    problem.add(part.pair, input_, output, times, part.timestamp)
                elif output is UNKNOWN or "ok" in output:
                    problem.add(part.pair, input_, UNKNOWN, (after, None), None)
        looked_at: set[tuple[str, str, int | None]] = set()
        for look, seen in looks:
            assert look.timestamp is not None, "only looks with a timestamp are judged"
            at = rank[look.timestamp] + 1
            for key, row in seen:
                # No unknown write fits between two equal answers at one timestamp, so one of the
                # answers is enough.
                if (look.table, key, look.timestamp) in looked_at:
                    continue
                looked_at.add((look.table, key, look.timestamp))
                place = (look.table, key)
                write = writes.get((place, look.timestamp))
                if write is None:
                    problem.add(look.pair, RowInput(place), Seen(row), (at, at), None)
                    continue
                operation = problem.operations[write]
                input_ = operation.input._replace(then=Seen(row))
                problem.operations[write] = replace(operation, input=input_)
                problem.looks[write] = look.pair
        return problem
