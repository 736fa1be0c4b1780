"""Converts a recorded history in the vocabulary "ddl" to operations on the catalog model.

Op indices serve as time: the harness records an invocation before it sends anything, and a
completion after everything has arrived.

* A `fail` with the result "exists" or "not-found" is an observation that the order must explain.
  Any other `fail` had no effect and is left out.
* A mutation that ended as `info` may take effect at any time after its call, or never. A read that
  ended as `info` is left out.
* A create sends a nonce, which later answers show as the table's comment. If one nonce has two ids,
  or one id has two nonces, exactly-once is violated. This is a `Conflict`.
* If the answer of a create was lost but another answer shows its table, the create returns at the
  latest when this other answer returned.
* Creates with lost answers that no answer shows are interchangeable if their names and columns are
  equal. They share a key.
* A read with a staleness bound becomes an ordinary read that was invoked earlier by the bound.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from checkers.catalog.models.types import (
    Alter,
    Answer,
    CatalogInput,
    CatalogOperation,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
)
from checkers.linearizability import UNKNOWN, Operation, Unknown
from harness.errors import HistoryError, clipped
from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import kudu_hms, members, rows
from harness.vocabularies.ddl import MUTATIONS, READS, Answered
from harness.vocabularies.follower_reads import FRESH

REFUSALS = frozenset({"exists", "not-found"})
_LATE: Final = {"result": "ok", "by": "hive"}
_OF_ROWS: Final = frozenset(call.f for call in rows.ROW_CALLS)
_HIVE_READS: Final = frozenset(call.f for call in kudu_hms.HIVE_CALLS if not call.mutates)
_OF_MEMBERS: Final = frozenset(call.f for call in members.CALLS)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two answers whose pairs (table id, nonce) cannot both be true.

    `answers` has the index of each invocation with its pair; `text` describes the conflict.
    """

    text: str
    answers: tuple[tuple[int, tuple[str, str]], tuple[int, tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class CatalogHistory:
    """The operations of a catalog history, and the facts that its answers establish.

    Operation ids are the indices of invocations. `bindings` maps table ids to the keys of creates.
    """

    operations: tuple[CatalogOperation, ...]
    bindings: Mapping[str, str]
    conflicts: tuple[Conflict, ...]
    pairs: Mapping[int, Pair]
    # id of a create whose answer was lost -> the invocation of an operation that showed its table
    seen_creates: Mapping[int, int]
    # id of a change that was sent several times -> the key of the second table that it may make
    sent_again: Mapping[int, str]


# --- operations on the catalog, and the staleness bounds of its reads -------------------------


def catalog_part(history: History, *, bounded: bool = True) -> History:
    """Return the history without operations on rows and members.

    Reads with a staleness bound are kept only if `bounded`. Kudu applies a change made through Hive
    at an unknown later time, so the outcome of such a change becomes unknown. If Hive acknowledged
    the change, its value becomes `_LATE`.
    """
    gone = {
        op.index
        for pair in history.pairs
        if _is_elsewhere(pair) or (is_bounded(pair) and not bounded)
        for op in (pair.invoke, pair.completion)
        if op is not None
    }
    if gone:
        history = History((op for op in history if op.index not in gone), foreign=True)
    if any(op.f in kudu_hms.IN_KUDU for op in history):
        history = History(map(_of_unknown_outcome, history), foreign=True)
    return history


def _is_elsewhere(pair: Pair) -> bool:
    call = pair.invoke
    if call.f in _OF_ROWS:
        return isinstance(call.value, Mapping) and "table" in call.value
    refused = call.f in kudu_hms.IN_KUDU and pair.type is OpType.FAIL
    return call.f in _OF_MEMBERS or call.f in _HIVE_READS or refused


def _of_unknown_outcome(op: Op) -> Op:
    f = kudu_hms.IN_KUDU.get(op.f)
    if f is None:
        return op
    if op.type is OpType.INVOKE:
        return msgspec.structs.replace(op, f=f)
    value = _LATE if op.type is OpType.OK else None
    return msgspec.structs.replace(op, f=f, type=OpType.INFO, value=value)


def is_late(pair: Pair) -> bool:
    """Whether the operation is a change that Hive acknowledged and Kudu applies later."""
    done = pair.completion
    return done is not None and done.type is OpType.INFO and done.value == _LATE


def is_bounded(pair: Pair) -> bool:
    """Whether the operation is a read with a staleness bound."""
    return pair.invoke.f in FRESH


def bound_ns(pair: Pair) -> int | None:
    """Return the staleness bound that the answer states; `None` without a bound or an answer."""
    done = pair.completion
    if done is None or done.type is not OpType.OK or not isinstance(done.value, dict):
        return None
    bound = done.value.get("bound_ns")
    return bound if type(bound) is int and bound >= 0 else None


def calls_before(history: History) -> Mapping[int, int]:
    """Map each answered read with a staleness bound to the index at which it counts as invoked.

    Both indices are op indices. The read counts as invoked at the first op that was recorded within
    the bound before the actual invocation.
    """
    bounded = [
        (pair, bound)
        for pair in history.pairs
        if is_bounded(pair) and (bound := bound_ns(pair)) is not None
    ]
    if not bounded:
        return {}
    times = [op.time for op in history]
    indices = [op.index for op in history]
    calls = {}
    for pair, bound in bounded:
        place = bisect.bisect_left(times, pair.invoke.time - bound)
        calls[pair.invoke.index] = min(pair.invoke.index, indices[place])
    return calls


# --- values of the vocabulary ------------------------------------------------------------------


def _value(op: Op) -> dict[str, Any]:
    if not isinstance(op.value, dict):
        raise HistoryError(
            f"op {op.index} ({op.f}) has the value {op.value!r}; "
            "in the vocabulary 'ddl' every value is an object"
        )
    return op.value


def _field(op: Op, name: str) -> Any:
    value = _value(op)
    if name not in value:
        raise HistoryError(f"op {op.index} ({op.f}) has no {name!r} in its value {value!r}")
    return value[name]


class _Asked(msgspec.Struct):
    name: str = ""
    new_name: str = ""
    columns: list[str] = []
    steps: list[list[str]] = []


def _check_shapes(pair: Pair) -> None:
    call, done = pair.invoke, pair.completion
    _check_fields(call, _Asked)
    if done is None or done.type is OpType.INFO:
        return
    if done.f != call.f:
        raise HistoryError(
            f"op {done.index} completes {done.f!r}, but op {call.index} of the same process "
            f"invoked {call.f!r}"
        )
    _check_fields(done, Answered)


def _check_fields(op: Op, shape: type[msgspec.Struct]) -> None:
    if not isinstance(op.value, dict):
        return  # `_value` raises the error for a value that is not an object
    try:
        msgspec.convert(op.value, shape)
    except msgspec.ValidationError as error:
        raise HistoryError(
            f"op {op.index} ({op.f}) has the value {clipped(repr(op.value), 80)}: {error}"
        ) from error


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _shown_tables(pair: Pair) -> Iterator[tuple[str, str | None]]:
    done = pair.completion
    if done is None or done.type is not OpType.OK:
        return
    value = _value(done)
    if value.get("result", "ok") != "ok":
        return
    f = FRESH.get(done.f, done.f)
    if f == "list":
        for entry in _field(done, "tables"):
            ident = _text(entry[1])
            if ident is not None:
                yield ident, None
        return
    ident = _text(value.get("table_id"))
    if ident is not None:
        nonce = None
        if done.f == "create":
            nonce = _text(_value(pair.invoke).get("nonce"))
        elif f == "get":
            nonce = _text(value.get("comment"))
        yield ident, nonce


def _again(key: str) -> str:
    return f"{key}, sent again"


def _sent_again(history: History) -> dict[int, str]:
    return {
        pair.invoke.index: _again(_text(fields.get("nonce")) or f"op {pair.invoke.index}")
        for pair in history.pairs
        if pair.invoke.f in MUTATIONS
        and (
            pair.completion is None
            or (pair.type is OpType.OK and len(pair.completion.attempts) > 1)
        )
        and isinstance(fields := pair.invoke.value, dict)
    }


def _bind(
    history: History, again: frozenset[str] = frozenset()
) -> tuple[dict[str, str], tuple[Conflict, ...]]:
    ids: dict[str, tuple[str, int]] = {}
    nonces: dict[str, tuple[str, int]] = {}
    conflicts: dict[tuple[str, str], Conflict] = {}
    for pair in history.pairs:
        for ident, nonce in _shown_tables(pair):
            if nonce is None:
                continue
            at = pair.invoke.index
            other_nonce, first = ids.setdefault(ident, (nonce, at))
            if other_nonce == _again(nonce):
                continue
            if other_nonce != nonce:
                text = (
                    f"table {ident} was made by two creates, with nonces {other_nonce} and {nonce}"
                )
                both = ((first, (ident, other_nonce)), (at, (ident, nonce)))
                conflicts.setdefault((ident, nonce), Conflict(text, both))
            other_id, first = nonces.setdefault(nonce, (ident, at))
            if other_id != ident and _again(nonce) in again:
                ids[ident] = (_again(nonce), at)
                other_id, first = nonces.setdefault(_again(nonce), (ident, at))
            if other_id != ident:
                text = f"the create with nonce {nonce} made two tables, {other_id} and {ident}"
                both = ((first, (other_id, nonce)), (at, (ident, nonce)))
                conflicts.setdefault((nonce, ident), Conflict(text, both))
    return {ident: nonce for ident, (nonce, _) in ids.items()}, tuple(conflicts.values())


def _input(op: Op, key: str) -> CatalogInput:
    f = FRESH.get(op.f, op.f)
    if f == "list":
        return ListTables()
    name = _field(op, "name")
    match f:
        case "create":
            return Create(name, key, tuple(_value(op).get("columns", ())))
        case "alter":
            return Alter(name, tuple(tuple(step) for step in _field(op, "steps")))
        case "rename":
            return Rename(name, _field(op, "new_name"))
        case "delete":
            return Delete(name)
        case "get":
            return Get(name)
        case _:
            return Look(name)


def _answer(op: Op) -> Answer:
    value = _value(op)
    result = value.get("result", "ok")
    if result not in {"ok", *REFUSALS}:
        raise HistoryError(
            f"op {op.index} ({op.f}) is {op.type.value} with result {result!r}; "
            "the result must be 'ok', 'exists' or 'not-found'"
        )
    if result != "ok":
        return Answer(result)
    f = FRESH.get(op.f, op.f)
    if f == "list":
        listing = tuple((e[0], _text(e[1]), e[2]) for e in _field(op, "tables"))
        if len({name for name, _, _ in listing}) != len(listing):
            # A list with the same name twice is wrong in every state. Repeating all its entries
            # makes sure that the model refuses it.
            listing = (*listing, *listing)
        return Answer("ok", listing=listing)
    columns = value.get("columns") if f == "get" else None
    return Answer(
        "ok",
        table_id=_text(value.get("table_id")),
        version=value.get("schema_version"),
        key=_text(value.get("comment")) if f == "get" else None,
        applied=value.get("applied_schema_version") if f == "get" else None,
        columns=None if columns is None else tuple(columns),
    )


def _first_sights(history: History) -> dict[str, tuple[int, int]]:
    first: dict[str, tuple[int, int]] = {}
    for pair in history.pairs:
        for ident, _ in _shown_tables(pair):
            assert pair.completion is not None
            sight = (pair.completion.index, pair.invoke.index)
            first[ident] = min(first.get(ident, sight), sight)
    return first


def _shown_nonces(history: History) -> set[str]:
    answers = (None if pair.completion is None else pair.completion.value for pair in history.pairs)
    comments = (_text(value.get("comment")) for value in answers if isinstance(value, dict))
    return {comment for comment in comments if comment is not None}


def catalog_history(history: History, *, again: bool = False) -> CatalogHistory:
    """Convert `history` to operations on the catalog model, without operations on rows and members.

    With `again`, a create that was sent twice may have made two tables. Raises `HistoryError` for
    operations and values that are not in the vocabulary "ddl".
    """
    history = catalog_part(history)
    for pair in history.pairs:
        _check_shapes(pair)
    sent_again = _sent_again(history) if again else {}
    bindings, conflicts = _bind(history, frozenset(sent_again.values()))
    ids = {nonce: ident for ident, nonce in bindings.items()}
    sights = _first_sights(history)
    operations: list[CatalogOperation] = []
    seen: dict[int, int] = {}
    nonces: dict[str, int] = {}
    comments = _shown_nonces(history)
    earlier = calls_before(history)
    for pair in history.pairs:
        call = pair.invoke
        if call.f not in MUTATIONS | READS and not is_bounded(pair):
            raise HistoryError(
                f"op {call.index} invokes {call.f!r}, which is not in the vocabulary 'ddl': "
                f"{', '.join(sorted(MUTATIONS | READS))}"
            )
        key = _nonce(call, nonces) if call.f == "create" else ""
        answer: Answer | Unknown = UNKNOWN
        returned: int | None = None
        if pair.type is OpType.INFO:
            if call.f in READS or is_bounded(pair):
                continue
            if call.f == "create" and key in ids:
                sight, by = sights[ids[key]]
                # If an answer showed the table before its create was invoked, the create's outcome
                # stays unknown, so that the search refutes the history.
                if sight > call.index:
                    returned, seen[call.index] = sight, by
                    answer = Answer("ok", table_id=ids[key])
            elif call.f == "create" and key not in comments:
                columns = ", ".join(_value(call).get("columns", ()))
                key = f"an unseen create of {call.value['name']!r} ({columns})"
        else:
            assert pair.completion is not None
            if pair.type is OpType.FAIL and not _is_observation(pair.completion):
                continue
            answer, returned = _answer(pair.completion), pair.completion.index
            if answer.key is not None and bindings.get(str(answer.table_id)) == _again(answer.key):
                answer = answer._replace(key=_again(answer.key))
        before = earlier.get(call.index)
        operations.append(
            Operation(
                call.process if isinstance(call.process, int) and before is None else -1,
                _input(call, key),
                call.index if before is None else before - 0.5,
                answer,
                returned,
                call.index,
            )
        )
    return CatalogHistory(
        tuple(operations),
        bindings,
        conflicts,
        {pair.invoke.index: pair for pair in history.pairs},
        seen,
        sent_again,
    )


def _is_observation(done: Op) -> bool:
    return isinstance(done.value, dict) and done.value.get("result") in REFUSALS


def _nonce(call: Op, nonces: dict[str, int]) -> str:
    nonce = _text(_value(call).get("nonce")) or f"op {call.index}"
    if nonce in nonces:
        raise HistoryError(
            f"ops {nonces[nonce]} and {call.index} are both creates with nonce {nonce!r}; "
            "every mutation needs its own nonce"
        )
    nonces[nonce] = call.index
    return nonce
