"""Checks that a metastore's tables are linearizable together, including renames and lists.

A history that is not linearizable is judged again under the profile's permits (deviations that the
profile accepts). Permits allow drops that do nothing because another drop or a rename came first,
and changes that reach a table under its new name. They also allow gets that show an unfinished
change, and changes that take effect twice because they were sent twice. The result names only the
permits that the history needs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from checkers.hms.hints import hinted, logged_twice
from checkers.hms.model import (
    LaxMetastore,
    Metastore,
    MetastoreOperation,
    OrderedMetastore,
    renamed,
)
from checkers.hms.reading import COPY, MetastoreHistory, metastore_history, sentence
from checkers.linearizability import UNKNOWN, CheckOutcome, Failure, Result, check_operations
from checkers.linearizability.proof import Certificate, Told, judged, offenders
from checkers.verdict.search import (
    Attempt,
    Relaxed,
    SearchChecker,
    attempted,
    first_order,
    rest_of_core,
    under_permits,
)
from checkers.verdict.sentences import ops
from harness.ops import CheckResult, History, OpType, Pair, Verdict
from harness.permits import (
    CHANGE_RENAMED,
    DDL_TWICE,
    DROP_MISSED,
    DROP_RENAMED,
    DROP_TWICE,
    TORN_GET,
    permits_of,
)
from harness.vocabularies import fields_of
from harness.vocabularies.hms import READS, full_name

HINTED_SHARE: Final = 0.3
"""The share of time and steps for searches with hints from the notification log."""
ORDERED_SHARE: Final = 0.02
"""The share of steps for a search in the order of the notification log. This search needs few
steps.
"""
EXPLAINING: Final = (
    DROP_TWICE, DROP_RENAMED, DROP_MISSED, TORN_GET, CHANGE_RENAMED, DDL_TWICE,
)  # fmt: skip
"""The permits that can explain a history, the preferred permit first."""


class HmsLinearizable(SearchChecker, judges_prefixes=True):
    """Checks that all tables of a metastore together are one linearizable object."""

    name = "linearizable-hms"
    doc = "DDL of a metastore is linearizable over all databases, lists and renames included"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case
        end_s = time.monotonic() + time_limit_s
        converted = metastore_history(history)
        model = Metastore()
        outcome = self._hinted(history, converted, time_limit_s * HINTED_SHARE)
        if outcome is None:
            left_s = max(0.0, end_s - time.monotonic())
            outcome = check_operations(
                model, converted.operations, timeout_s=left_s, limits=self._limits
            )

        def tell(failure: Failure, proof: Certificate) -> Told:
            del proof
            return _told(failure, converted)

        strict = judged(
            self.name, model, converted.operations, outcome, tell=tell, limits=self._limits
        )
        if strict.verdict is not Verdict.INVALID:
            return strict
        return self._under_permits(history, strict, converted, end_s)

    def _hinted(
        self, history: History, converted: MetastoreHistory, timeout_s: float
    ) -> CheckOutcome | None:
        if not any(operation.is_unknown for operation in converted.operations):
            return None
        operations = hinted(converted, history)
        if not operations:
            return None
        models = ((OrderedMetastore(), ORDERED_SHARE), (Metastore(), HINTED_SHARE))
        attempts = [Attempt(model, operations, share, timeout_s) for model, share in models]
        return first_order(attempts, self._limits)[0]

    def _under_permits(
        self, history: History, strict: CheckResult, converted: MetastoreHistory, end_s: float
    ) -> CheckResult:
        permits = permits_of(history)
        able = [name for name in EXPLAINING if name in permits]
        hints = hinted(converted, history)
        growing = [able[:size] for size in range(1, len(able) + 1)]
        twice = logged_twice(history)
        tries = [_Try(allowed, hints, twice) for allowed in growing]
        tries += [_Try(able), _Try(able, lost=True)] if able else []
        relaxed = None
        for each in tries:
            outcome = self._outcome(converted, each, end_s)
            if outcome.result is Result.OK:
                relaxed = Relaxed(self._needed(converted, each, outcome, end_s))
                break
            relaxed = Relaxed(None, exhausted=outcome.result is not Result.UNKNOWN)
        return under_permits(strict, relaxed, permits, able)

    def _needed(
        self, converted: MetastoreHistory, explaining: _Try, outcome: CheckOutcome, end_s: float
    ) -> dict[str, int]:
        """Return how often each permit is needed, after leaving out permits that are not needed."""
        for name in [*explaining.allowed][::-1]:
            fewer = explaining._replace(allowed=[n for n in explaining.allowed if n != name])
            if not fewer.allowed:
                break
            again = self._outcome(converted, fewer, end_s)
            if again.result is Result.OK:
                explaining, outcome = fewer, again
        return _counts(converted, outcome, explaining)

    def _outcome(self, converted: MetastoreHistory, each: _Try, end_s: float) -> CheckOutcome:
        left_s = max(0.0, end_s - time.monotonic())
        model, operations = LaxMetastore().to_model(), _relaxed(converted, each)
        return attempted(Attempt(model, operations, 1.0, left_s), self._limits)


# --- what permits allow ------------------------------------------------------------------------


class _Try(NamedTuple):
    """The permits of one attempt to find an order, with hints from the notification log.

    `hints` has the operations with intervals from this log. `twice` has the nonces with several
    events in the log. If `lost` is true, lost renames may take effect between the steps of another
    operation. Then almost every answer becomes legal.
    """

    allowed: Sequence[str]
    hints: Sequence[MetastoreOperation] | None = None
    twice: frozenset[str] = frozenset()
    lost: bool = False


def _relaxed(converted: MetastoreHistory, each: _Try) -> list[MetastoreOperation]:
    every = list(_lax(converted, each))
    if each.hints is None:
        return every
    placed = {hint.id: hint for hint in each.hints}
    return [
        operation if hint is None else _placed(operation, hint)
        for operation in every
        if (hint := placed.get(operation.id)) is not None or _is_twice(converted, each, operation)
    ]


def _is_twice(converted: MetastoreHistory, each: _Try, operation: MetastoreOperation) -> bool:
    """Whether `operation` is the second effect of a change, and the log does not rule it out."""
    if operation.id < COPY:
        return False
    nonce = fields_of(converted.pairs[operation.id - COPY].invoke).get("nonce")
    return operation.input.f == "drop" or nonce in each.twice


def _placed(operation: MetastoreOperation, hint: MetastoreOperation) -> MetastoreOperation:
    output = hint.output if operation.is_unknown else operation.output
    return replace(operation, call=hint.call, return_time=hint.return_time, output=output)


def _end(operation: MetastoreOperation) -> float:
    return float("inf") if operation.return_time is None else operation.return_time


def _overlapping(
    one: MetastoreOperation, others: Sequence[MetastoreOperation]
) -> Iterator[MetastoreOperation]:
    return (
        other
        for other in others
        if other.id != one.id and other.call < _end(one) and one.call < _end(other)
    )


def _lax(converted: MetastoreHistory, each: _Try) -> Iterator[MetastoreOperation]:
    allowed = each.allowed
    every = converted.with_copies() if DDL_TWICE in allowed else converted.operations
    model = Metastore()
    changes = [change for change in every if not model.read_only(change.input, change.said)]
    placed = {hint.id: hint for hint in each.hints or ()}
    drops = [change for change in changes if change.input.f == "drop"]
    renames = [placed.get(change.id, change) for change in changes if change.input.f == "rename"]
    if not each.lost:
        renames = [change for change in renames if not change.is_unknown]

    following = {DROP_RENAMED, CHANGE_RENAMED}.intersection(allowed)
    moved = [change for change in changes if following and change.input.f != "create"]
    every_name = _names(moved, renames, late=CHANGE_RENAMED in allowed)

    def named(operation: MetastoreOperation) -> tuple[str, ...]:
        permit = DROP_RENAMED if operation.input.f == "drop" else CHANGE_RENAMED
        return every_name[operation.id][1:] if permit in allowed else ()

    for operation in every:
        call, answer = operation.input, operation.said
        if call.f == "get" and TORN_GET in allowed and answer is not UNKNOWN:
            nonces = {change.input.nonce for change in _overlapping(operation, changes)}
            torn = answer.nonce is not None and answer.nonce in nonces
            yield replace(operation, output=answer._replace(nonce=None)) if torn else operation
        elif call.f == "drop" and operation in changes:
            others = named(operation)
            renamed_away = DROP_MISSED in allowed and any(
                call.name in {rename.input.name, *named(rename)}
                for rename in _overlapping(operation, renames)
            )
            # Another drop may have deleted the same row, perhaps under another name after a rename.
            dropped = DROP_TWICE in allowed and any(
                drop.input.name in {call.name, *others} for drop in _overlapping(operation, drops)
            )
            idle = renamed_away or dropped
            yield replace(operation, input=call._replace(idle=idle, others=others))
        elif call.f in {"alter", "rename"} and operation in changes:
            yield replace(operation, input=call._replace(others=named(operation)))
        else:
            yield operation


def _names(
    changes: Sequence[MetastoreOperation], renames: Sequence[MetastoreOperation], *, late: bool
) -> dict[int, tuple[str, ...]]:
    """Map each change's id to the names that its table may have until the change is written.

    The requested name is first. Other names come from renames that overlap the change.
    """
    names = {change.id: dict.fromkeys([change.input.name]) for change in changes}
    meanwhile = {change.id: list(_overlapping(change, renames)) for change in changes}
    grew = True
    while grew:
        grew = False
        for ident, overlapping in meanwhile.items():
            of_change = names[ident]
            before = len(of_change)
            for rename in overlapping:
                same_table = late and not names[rename.id].keys().isdisjoint(of_change)
                of_change |= dict.fromkeys(
                    renamed(rename.input, name)
                    for name in tuple(of_change)
                    if same_table or rename.input.name == name
                )
            grew = grew or len(of_change) > before
    return {ident: tuple(of_change) for ident, of_change in names.items()}


def _counts(converted: MetastoreHistory, outcome: CheckOutcome, each: _Try) -> dict[str, int]:
    by_id = {operation.id: operation for operation in _relaxed(converted, each)}
    allowed = each.allowed
    seen = {operation.id: operation.said for operation in converted.operations}
    model = LaxMetastore().to_model()
    states: frozenset[Any] = model.init()
    counts: Counter[str] = Counter(dict.fromkeys(allowed, 0))
    for number in (outcome.witness or ((),))[0]:
        operation = by_id[number]
        call, tables = operation.input, [dict(state) for state in states]
        if number >= COPY:
            counts[DDL_TWICE] += 1
        elif call.f == "get":
            answer = seen[number]
            if answer is not UNKNOWN and answer.nonce != (
                None if operation.said is UNKNOWN else operation.said.nonce
            ):
                counts[TORN_GET] += all(table.get(call.name) != answer.nonce for table in tables)
        elif (
            call.f in {"drop", "alter", "rename"}
            and operation.said is not UNKNOWN
            and operation.said.result == "ok"
            and not any(call.name in table for table in tables)
        ):
            moved = any(other in table for table in tables for other in call.others)
            able = [CHANGE_RENAMED] if call.f != "drop" else [DROP_TWICE, DROP_MISSED]
            if call.f == "drop" and (moved or not {*able} & {*allowed}):
                able = [DROP_RENAMED]
            counts[next(name for name in able if name in allowed)] += 1
        _, states = model.step(states, call, operation.said)
    return {name: max(1, counts[name]) for name in allowed}


# --- words -----------------------------------------------------------------------------------


def _rule(pair: Pair) -> str:
    result = fields_of(pair.completion).get("result", "ok")
    if pair.invoke.f in READS:
        return "missing" if result != "ok" else "stale-read"
    return f"{pair.invoke.f}-{'acknowledged' if pair.type is OpType.OK else result}"


def _told(failure: Failure, converted: MetastoreHistory) -> Told:
    pairs = converted.pairs
    failing = pairs[failure.operation]
    subject = converted.sentence(failing)
    text = [f"{subject}, but no order of the operations that respects real time allows it."]
    text += [
        _before(name, states, failure, converted) for name, states in _states(failure, failing)
    ]
    blamed = offenders(failure)
    seen = str(fields_of(failing.completion).get("nonce"))
    writer = converted.writers.get(seen) if failing.invoke.f == "get" else None
    if writer is not None and writer not in failure.core:
        text.append(f"It saw this change: {sentence(pairs[writer])}.")
    sentences = {index: converted.sentence(pairs[index]) for index in blamed}
    text += rest_of_core(blamed, sentences, minimal=failure.core_minimal)
    return Told(subject, text, blamed, _rule(failing))


def _states(failure: Failure, failing: Pair) -> Iterator[tuple[str, list[str | None]]]:
    """Yield, for each table name that the failing operation concerns, the name and a list.

    The list has one entry per state that was still possible before the failure: the nonce (unique
    id) of the table with that name, or `None` if the state has no such table.
    """
    every: list[Any] = [survivor.state for survivor in failure.survivors]
    if not every:
        return
    if failure.projection:
        name = failure.projection.removeprefix("name ").strip("'")
        yield name, [None if slot is None else slot[2] or "" for slot in every]
        return
    call, listed = fields_of(failing.invoke), fields_of(failing.completion).get("tables", ())
    if failing.invoke.f == "list":
        names = {*listed, *(name for state in every for name, _ in state)}
    else:
        about = [("database", "name"), ("new_database", "new_name")]
        names = {full_name(call[of], call[name]) for of, name in about if name in call}
    for name in sorted(names):
        tables = [dict(state).get(name) for state in every]
        there = {table is not None for table in tables}
        if failing.invoke.f != "list" or there != {name in listed}:
            yield name, tables


def _before(
    name: str, tables: Sequence[str | None], failure: Failure, converted: MetastoreHistory
) -> str:
    text = f"Before op {failure.operation}"
    there = {table is not None for table in tables}
    if len(there) > 1:
        return f"{text} table {name} existed or not, depending on the order."
    is_part = failure.survivors_total > len(tables)
    text += f", in {f'each of {len(tables)} orders' if is_part else 'every possible order'}"
    writers = {converted.writers.get(table or "") for table in tables}
    state = "existed" if there == {True} else "did not exist"
    if converted.pairs[failure.operation].invoke.f == "get" and None not in writers:
        state = f"was as {ops(sorted(n for n in writers if n is not None), limit=3)} had left it"
    last = converted.last_sign(name, True in there, failure.operation)
    return f"{text}, table {name} {state}{f'; {last}' if last else ''}."
