"""Makes the rows of `runs`, `nodes`, `verdicts` and `findings`, one by one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, Op, Verdict
from harness.permits import permitted_in
from harness.verdict.judge import checker_names
from harness.verdict.signature import SIGNATURE, rule_of
from results.facts.schema import LIST_SEPARATOR
from results.facts.setting import asked_nemeses, setting_of
from results.facts.timeline import field_of, whole_of
from results.lake.tables.run_notes import RunNotes
from results.lake.tables.sealed_run import FINISHED, Source, started_of

Row = tuple[Any, ...]
FINDING_OPS_MAX: Final = 1_000
EXPLANATION_MAX: Final = 1_000
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Counted(msgspec.Struct, frozen=True):
    """Counts of a history, for the run's row in the table `runs`."""

    length_ns: int
    lines: int
    ops: int
    ok: int
    fail: int
    info: int
    refused: int
    elections: int
    faults: int
    interrupted: bool
    key_ranges: list[int]


def counted(noted: RunNotes, counts: Mapping[str, Any]) -> Counted:
    """Combine `counts` with the counts from the run's notes, such as elections and faults."""
    return Counted(
        length_ns=noted.end_ns,
        elections=max(0, len(noted.history.leaders()) - 1),
        faults=len(noted.timeline.faults),
        interrupted=any(True for _ in noted.history.facts("interrupted")),
        **counts,
    )


def run_row(source: Source, counts: Counted) -> Row:
    """Make the row of a run in the table `runs`."""
    about, case, record = source.about, source.about.case, source.about.record
    environment = None if record is None else record.environment
    kept = record if about.state == FINISHED else None
    failure = None if kept is None else kept.failure
    return (
        about.name,
        about.id,
        case.seed,
        environment,
        case.profile,
        case.workload,
        LIST_SEPARATOR.join(sorted(set(case.nemeses))),
        asked_nemeses(case),
        LIST_SEPARATOR.join(sorted(set(case.bugs))),
        LIST_SEPARATOR.join(_checkers(case.workload, case.checkers)),
        setting_of(case, environment),
        None if record is None else started_of(record.started),
        None if record is None else record.wall_s,
        None if record is None else record.simulated_s,
        counts.length_ns,
        None if kept is None else kept.verdict.value,
        None if failure is None else failure.checker,
        None if failure is None else failure.reason,
        None if failure is None else failure.signature,
        source.digest,
        counts.lines,
        counts.ops,
        counts.ok,
        counts.fail,
        counts.info,
        counts.refused,
        counts.elections,
        counts.faults,
        counts.interrupted or (record is not None and record.interrupted),
        kept is not None,
        counts.key_ranges,
        None if record is None else _encode(record.versions).decode(),
        [] if record is None else list(record.warnings),
        _encode(case).decode(),
        source.folder,
        about.state,
    )


@functools.lru_cache(maxsize=1_000)
def _checkers(workload: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a case's checkers; empty if the case's workload is not installed."""
    try:
        return checker_names(Case(seed=0, workload=workload, checkers=others))
    except UsageError:
        return ()


def node_rows(noted: RunNotes, tried: Mapping[str, tuple[int, int]]) -> list[Row]:
    """Make the rows of the table `nodes`: one row per node that the run mentions, by name."""
    history = noted.history
    led: dict[str, set[Any]] = {}
    for op in history.facts("leader"):
        led.setdefault(_name(op), set()).add(str(field_of(op, "term")))
    exits = list(history.facts("node-exit"))
    hit = [name for fault in noted.timeline.faults for name in set(fault.targets)]
    memory, disk, written = (
        _last(history.facts(fact), field)
        for fact, field in (
            ("memory", "bytes"),
            ("usage", "disk_bytes"),
            ("usage", "written_bytes"),
        )
    )
    ended = [_name(op) for op in exits]
    crashed = [
        _name(op)
        for op in exits
        if field_of(op, "expected") is not True and field_of(op, "by") not in {"nemesis", "host"}
    ]
    names = {*led, *ended, *hit, *tried, *memory, *disk, *written} - {""}
    return [
        (
            name,
            len(led.get(name, ())),
            hit.count(name),
            ended.count(name),
            crashed.count(name),
            *tried.get(name, (0, 0)),
            memory.get(name),
            disk.get(name),
            written.get(name),
        )
        for name in sorted(names)
    ]


def _name(op: Op) -> str:
    node = field_of(op, "node")
    return "" if node is None else str(node)


def _last(facts: Any, field: str) -> dict[str, int | None]:
    """Return the mapping of nodes to values in `field` of the last fact that has this field."""
    values: Any = None
    for op in facts:
        noted = field_of(op, field)
        values = noted if isinstance(noted, dict) else values
    return {} if values is None else {name: whole_of(value) for name, value in values.items()}


def verdict_rows(source: Source) -> list[Row]:
    """Make the rows of the table `verdicts` from the stored results of the run's own checkers."""
    rows: list[Row] = []
    for result in source.results:
        holds = result.verdict.holds
        explored = result.details.get("configurations")
        rows.append(
            (
                result.checker,
                None,
                result.verdict.value,
                None if result.verdict is Verdict.VALID else rule_of(result),
                None if holds else _signature(result),
                result.reason,
                sum(permitted_in(result).values()),
                None,
                whole_of(explored),
                None,
                None,
                None,
                None,
                None,
            )
        )
    return rows


def _signature(result: CheckResult) -> str | None:
    signature = result.details.get(SIGNATURE)
    return signature if isinstance(signature, str) else None


def finding_rows(source: Source) -> list[Row]:
    """Make the rows of the table `findings`: one row per checker and operation that it blames.

    A checker with a bad verdict that blames no operation also gets a row.
    """
    return [
        (
            result.checker,
            result.verdict.value,
            rule_of(result),
            _signature(result),
            number,
            index,
            result.reason,
            list(result.explanation[:EXPLANATION_MAX]) if number == 0 else [],
            None,
        )
        for result in source.results
        if not result.verdict.holds
        for number, index in enumerate(result.operations[:FINDING_OPS_MAX] or (None,))
    ]
