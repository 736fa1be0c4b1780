"""Rebuilds a run's history, case and record from rows of a lake, exactly like the originals.

`history_of` needs only the run's rows in `operations`, `attempts`, `faults` and `events`.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.case import Case
from harness.errors import HistoryError, UsageError
from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType, Verdict
from harness.store import RunRecord
from harness.verdict.signature import Failure
from results.lake.tables.values import ANSWERS, ASKS, EVENTS, joined_outcome

HISTORY_TABLES: Final = ("operations", "attempts", "faults", "events")
_ACTORS: Final = {-1: NEMESIS, -2: HARNESS}
_BAD_ROW: Final = (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError)
_decode: Final = msgspec.json.Decoder().decode


def history_of(rows: Mapping[str, pa.Table], *, digest: str | None = None) -> History:
    """Rebuild the history of one run from its rows of `HISTORY_TABLES`, in any order.

    Raises `HistoryError` if the rows do not form a history, or if its digest is not `digest` (from
    `runs.digest`).
    """
    try:
        ops = {op.index: op for op in _of_faults(rows["faults"])}
        for op in _of_events(rows["events"]):
            ops[op.index] = op
        for _, pair in _of_clients(rows):
            for op in pair:
                ops[op.index] = op
        history = History(ops[index] for index in sorted(ops))
    except _BAD_ROW as error:
        raise HistoryError(f"these rows of a lake make no history: {error!r}") from error
    if digest is not None and history.digest() != digest:
        raise HistoryError(
            f"the run's rows in the lake make the history {history.digest()[:12]}..., but the "
            f"run's digest is {digest[:12]}...: some rows are missing, or were changed"
        )
    return history


def histories_by_key(rows: Mapping[str, pa.Table]) -> Iterator[tuple[str, list[Op]]]:
    """Yield each key (JSON) of a run over independent keys, and its ops, without keys in values.

    `rows` are `operations` sorted by key, as a lake stores them, and their `attempts`. Raises
    `HistoryError` for rows that do not form ops.
    """
    try:
        for key, pairs in itertools.groupby(_of_clients(rows, with_keys=False), itemgetter(0)):
            ops = [op for _, pair in pairs for op in pair]
            ops.sort(key=attrgetter("index"))
            yield key, ops
    except _BAD_ROW as error:
        raise HistoryError(f"these rows of a lake make no history: {error!r}") from error


def _rows(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _odd(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = _decode(text)
    if "attempts" in fields:
        fields["attempts"] = msgspec.convert(fields["attempts"], tuple[Attempt, ...])
    return fields


def _of_clients(
    rows: Mapping[str, pa.Table], *, with_keys: bool = True
) -> Iterator[tuple[Any, list[Op]]]:
    """Yield the key (JSON) and ops of each operation. `with_keys` makes values `[key, value]`."""
    table = rows["operations"]
    attempts: dict[int, list[tuple[Any, ...]]] = {}
    for index, *attempt in _rows(
        rows["attempts"], "index", "number", "node", "wait_ns", "left_ns", "outcome", "text"
    ):
        attempts.setdefault(index, []).append(tuple(attempt))
    plain = _rows(
        table,
        *("index", "lines", "process", "f", "type", "invoke_ns", "latency_ns", "node", "error"),
        *("key", "odd"),
    )
    for row, question, reply in zip(plain, ASKS.join(table), ANSWERS.join(table), strict=True):
        index, lines, process, f, kind, begin, latency, node, error, key, odd = row
        more = {} if odd is None else _odd(odd)
        name, whole = more.pop("f", f), more.pop("whole", False)
        keyed = with_keys and key is not None
        asked = [_decode(key), question] if keyed else question
        answer = [_decode(key), reply] if keyed and not whole else reply
        call = Op(index, begin, process, OpType.INVOKE, f, asked, **more)
        if lines is None:
            yield key, [call]
            continue
        end = _int64(begin + latency)
        made = tuple(
            Attempt(to, _int64(begin + wait), _int64(end - left), joined_outcome(code, text, error))
            for _, to, wait, left, code, text in sorted(attempts.get(index, ()))
        )
        done = Op(index + lines, end, process, OpType(kind), name, answer, error, node, made)
        yield key, [call, done]


def _int64(number: int) -> int:
    """Undo the wrap-around of a difference of 64-bit numbers."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _of_events(table: pa.Table) -> Iterator[Op]:
    plain = _rows(table, "index", "time_ns", "process", "type", "f", "error", "odd")
    for row, value in zip(plain, EVENTS.join(table), strict=True):
        index, time, process, kind, f, error, odd = row
        actor = _ACTORS.get(process, process)
        yield Op(index, time, actor, OpType(kind), f, value, error, **_odd(odd or "{}"))


def _of_faults(table: pa.Table) -> Iterator[Op]:
    for row in table.to_pylist():
        inject = {"action": "inject", "fault": row["fault"], "targets": row["targets"]}
        inject |= {"kind": row["kind"], "note": row["note"]}
        for action, value in (("inject", inject), ("heal", {"fault": row["fault"]})):
            index = row[f"{action}_index"]
            if index is None:
                continue
            rest = row[f"{action}_rest"]
            whole = {**value, "action": action, **({} if rest is None else _decode(rest))}
            time = row["start_ns" if action == "inject" else "end_ns"]
            yield Op(index, time, NEMESIS, OpType.INFO, row["nemesis"], whole)


def case_of(run: Mapping[str, Any]) -> Case:
    """Decode the case from a row of `runs`; raise `HistoryError` for an invalid case."""
    try:
        return msgspec.json.decode(run["case"], type=Case)
    except (msgspec.DecodeError, UsageError, TypeError, RecursionError) as error:
        raise HistoryError(f"the run {run['run']!r} has an invalid case: {error}") from error


def record_of(run: Mapping[str, Any]) -> RunRecord | None:
    """Rebuild the record (`run.json`) from a row of `runs`; `None` for an unfinished run."""
    if not run["finished"]:
        return None
    failure = run["failure_checker"]
    started: dt.datetime = run["started"]
    return RunRecord(
        run=run["id"],
        environment=run["environment"],
        started=started.isoformat(),
        wall_s=run["wall_s"],
        verdict=Verdict(run["verdict"]),
        digest=run["digest"],
        ops=run["ops"],
        versions=_decode(run["versions"]),
        warnings=tuple(run["warnings"]),
        label=run["label"],
        interrupted=run["interrupted"],
        simulated_s=run["simulated_s"],
        failure=None
        if failure is None
        else Failure(failure, run["failure_reason"], run["signature"]),
    )
