"""The linearizability checkers as plug-ins: over the whole catalog, and over one register.

A run's history becomes operations (`_catalog_history`). Over the catalog, passes look for what two
or three answers refute by themselves (`catalog.passes`), and replay the answers in the order of
their revisions; the search judges what they leave, with lost answers first in narrowed intervals.
Every verdict is proven by a certificate that another method verifies
(`linearizability.certificate`): one that proves nothing is a crash, and one that nobody could
confirm in time leaves `unknown`. An invalid verdict is told in sentences that name the operations
(`_sentences`). Time, memory and, where asked for, steps bound a search; that they were reached is
`unknown`, so that no other verdict depends on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from msgspec.structs import replace as replace_result

from checkers.catalog.history import CatalogHistory, catalog_history, shown_tables
from checkers.catalog.invariants.findings import fields_of, table_words
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.part import is_bounded
from checkers.catalog.passes import Contradiction, conflict, narrowed, refute, replay
from checkers.catalog.permits import judge_permitted
from checkers.catalog.sentences import explain_failure, sentence, where
from checkers.linearizability import (
    CheckOutcome,
    Failure,
    Limits,
    Operation,
    Result,
    check_operations,
)
from checkers.linearizability.certificate import Certificate, certify_core
from checkers.linearizability.judged import (
    OPERATIONS_MAX,
    Told,
    convicted,
    judged,
    operation_of,
)
from checkers.linearizability.models.register import (
    Cas,
    Read,
    Register,
    RegisterInput,
    Write,
    distinct,
)
from checkers.verdict.invariants import KEY, counted, invariant_of
from checkers.verdict.permitted import permit_rules, permitted_result
from harness.errors import HistoryError
from harness.ops import CheckResult, History, OpType, Pair, Verdict
from harness.permits import permits_of
from harness.plugins import Checker
from harness.vocabularies.ddl import READS

CONFLICTS_MAX = 3
CORE_SHOWN_MAX = 9
NARROWED_SHARE = 0.5  # of the time left, and beside all the steps half as many, to look at first


def _named(text: str, pairs: Iterable[Pair]) -> str:
    """`text` with the ids of tables beside the names by which `pairs` knew them."""
    for pair in pairs:
        given, value = fields_of(pair.invoke), fields_of(pair.completion)
        shown = [(given.get("new_name", given.get("name")), value.get("table_id"))]
        shown += [(entry[0], entry[1]) for entry in value.get("tables") or ()]
        for name, ident in shown:
            if name and ident:
                text = text.replace(f"table {ident} ", f"{table_words(ident, name)} ")
    return text


def _rule(pair: Pair) -> str:
    """The short name of what the failing operation broke; reports group failures by it."""
    result = fields_of(pair.completion).get("result", "ok")
    if pair.invoke.f in READS | {"read"} or is_bounded(pair):
        return "missing" if result == "not-found" else "stale-read"
    return "wrong-ack" if result == "ok" else f"wrong-{result}"


def _offenders(failure: Failure) -> tuple[int, ...]:
    """The failing operation first, then the rest of the core if it is small enough to help."""
    core = [index for index in failure.core if index != failure.operation]
    if len(core) >= OPERATIONS_MAX:
        core = [] if failure.previous is None else [failure.previous]
    return (failure.operation, *core)


class _Linearizable(Checker):
    """What both have: a search with limits."""

    api_version = 1

    def __init__(self, *, limits: Limits | None = None) -> None:
        """`limits` bounds the search; its time comes from `check`."""
        self._limits = limits or Limits()

    def bounded(self, *, steps: int, configurations: int) -> Self:
        """The same with other bounds of the search."""
        return type(self)(limits=replace(self._limits, steps=steps, configurations=configurations))


class CatalogLinearizable(_Linearizable):
    """The whole catalog is one linearizable object: names, ids, versions, columns and lists."""

    name = "linearizable-catalog"
    doc = "DDL is linearizable over the whole catalog, lists and renames included"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the vocabulary "ddl".

        What is not linearizable is judged again under what the profile permits.
        """
        del case
        end_s = time.monotonic() + time_limit_s
        result = self._strictly(history, end_s)
        looked = {**result.details.get("looked", {})}
        result.details[KEY] = counted(looked, [invariant_of("answers")])
        if result.verdict is not Verdict.INVALID:
            return result
        return _under_permits(history, result, end_s)

    def _strictly(self, history: History, end_s: float) -> CheckResult:
        converted = catalog_history(history)
        if converted.conflicts:
            return self._conflicting(converted)
        found = refute(converted.operations)
        if found is not None:
            proof = certify_core(found.part, found.core, minimal=True, limits=self._limits)
            if proof.confirmed_by:
                return self._contradicted(found, proof, converted)
        model = Catalog(converted.operations, converted.bindings)
        outcome = _replayed(converted) or _searched(model, converted, end_s, self._limits)

        def tell(failure: Failure, proof: Certificate) -> Told:
            del proof
            projected = None
            if failure.projection:
                projected = next(n for n in model.names if failure.projection == f"name {n!r}")
            whole = None if projected is not None else model
            text = explain_failure(failure, converted.pairs, whole, projected=projected)
            text += [
                f"Op {index}, whose answer was lost, did take effect: op "
                f"{converted.seen_creates[index]} saw its table."
                for index in failure.core
                if index in converted.seen_creates
            ]
            failing = converted.pairs[failure.operation]
            return Told(sentence(failing), text, _offenders(failure), _rule(failing))

        return judged(
            self.name, model, converted.operations, outcome, tell=tell, limits=self._limits
        )

    def _contradicted(
        self, found: Contradiction, proof: Certificate, converted: CatalogHistory
    ) -> CheckResult:
        """What a pass found, in a sentence for each answer and one for what they break."""
        rule = _named(found.rule, (converted.pairs[index] for index in found.core))
        shown = found.core[: 1 + CORE_SHOWN_MAX]
        text = [f"{sentence(converted.pairs[index])}." for index in shown]
        if len(found.core) > len(shown):
            text.append(f"{len(found.core) - len(shown)} more are not shown.")
        text.append(
            f"But {rule}: no order of the operations that respects real time explains "
            f"{'this answer' if len(found.core) == 1 else f'these {len(found.core)} answers'}."
        )
        details = {
            "operations": len(converted.operations),
            "unknown": sum(operation.is_unknown for operation in converted.operations),
            "decided_by": f"a pass over the {found.part.name}",
            "proof": proof.to_json(),
        }
        blamed = converted.pairs[found.core[0]]
        return convicted(
            self.name, Told(sentence(blamed), text, found.core, _rule(blamed)), details
        )

    def _conflicting(self, converted: CatalogHistory) -> CheckResult:
        text: list[str] = []
        blamed: list[int] = []
        for found in converted.conflicts[:CONFLICTS_MAX]:
            both = (found.first, found.second)
            blamed += both
            text += [f"{sentence(converted.pairs[index])}." for index in both]
            text.append(f"So {found.text}; a create takes effect once and ids are never reused.")
        if len(converted.conflicts) > CONFLICTS_MAX:
            text.append(f"{len(converted.conflicts) - CONFLICTS_MAX} more of the kind.")
        told = converted.conflicts[0]
        shown = [
            (index, (ident, nonce))
            for index in blamed[:2]
            for ident, nonce in shown_tables(converted.pairs[index])
            if nonce is not None
        ]
        against = conflict(shown, told.text)
        proof = certify_core(against.part, against.core, minimal=True, limits=self._limits)
        assert proof.confirmed_by, "two pairs are enumerated in three steps"
        details = {"conflicts": len(converted.conflicts), "proof": proof.to_json()}
        return convicted(self.name, Told(told.text, text, tuple(blamed), "created-twice"), details)


def _under_permits(history: History, strict: CheckResult, end_s: float) -> CheckResult:
    """The result `strict`, which is invalid, as the history's permits leave it."""
    permits = permits_of(history)
    found = judge_permitted(history, permits, end_s=end_s)
    if found is None:
        return permit_rules(strict, permits)
    details = {**strict.details, "permit_steps": found.steps}
    if found.counts is not None:
        return permitted_result(strict, permits, found.counts, found.examples, details)
    if found.exhausted:
        pairs = {pair.invoke.index: pair for pair in history.pairs}
        last = f": {sentence(pairs[found.stuck])}" if found.stuck in pairs else ""
        names = ", ".join(sorted(permits))
        text = (*strict.explanation, f"Nor does what the profile permits ({names}) explain{last}.")
        return permit_rules(replace_result(strict, explanation=text, details=details), permits)
    reason = f"{strict.reason}; whether the profile permits that could not be decided in time"
    details |= {"rule": "undecided", "limited": True}
    return replace_result(strict, verdict=Verdict.UNKNOWN, reason=reason, details=details)


def _replayed(converted: CatalogHistory) -> CheckOutcome | None:
    """What the revisions in the answers prove, if anything."""
    revisions: dict[int, int] = {}
    for index, pair in converted.pairs.items():
        value = None if pair.completion is None else pair.completion.value
        revision = value.get("revision") if isinstance(value, dict) else None
        if isinstance(revision, int):
            revisions[index] = revision
    if not revisions:
        return None
    model = Catalog(converted.operations, converted.bindings)
    order = replay(model, converted.operations, revisions)
    if order is None:
        return None
    returns = sum(not operation.is_unknown for operation in converted.operations)
    return CheckOutcome(
        result=Result.OK,
        reason="a legal order exists",
        witness=(order,) if order else (),
        decided_by="a replay in the order of revisions",
        steps=len(order),
        configurations=0,
        progress=returns,
        returns=returns,
    )


def _searched(
    model: Catalog, converted: CatalogHistory, end_s: float, limits: Limits
) -> CheckOutcome:
    """What a search finds until `end_s`, on the monotonic clock: an order with narrowed intervals
    at first, which is one with those of the answers, too. Without one, those have to be searched,
    since a core must rest on them.
    """

    def left_s() -> float:
        return max(0.0, end_s - time.monotonic())

    operations = None
    if any(operation.is_unknown for operation in converted.operations):
        operations = narrowed(converted.operations, is_over=lambda: left_s() == 0.0)
    spent = 0
    if operations is not None:
        first = check_operations(
            Catalog(operations, converted.bindings),
            operations,
            timeout_s=left_s() * NARROWED_SHARE,
            limits=limits.share(NARROWED_SHARE),
            explained=False,
        )
        if first.result is Result.OK:
            return first
        spent = first.steps
    outcome = check_operations(model, converted.operations, timeout_s=left_s(), limits=limits)
    reason = outcome.reason
    if spent and outcome.result is Result.UNKNOWN:
        reason = f"{reason}; before that, {spent} steps with narrowed intervals found no order"
    return replace(outcome, reason=reason, steps=outcome.steps + spent)


def _register_operation(pair: Pair) -> Operation[RegisterInput, Any] | None:
    call, done = pair.invoke, pair.completion
    value = fields_of(call)
    given: RegisterInput
    match call.f:
        case "read":
            given = Read()
        case "write" if "value" in value:
            given = Write(distinct(value["value"]))
        case "cas" if "old" in value and "new" in value:
            given = Cas(distinct(value["old"]), distinct(value["new"]))
        case _:
            raise HistoryError(
                f"op {call.index} invokes {call.f!r} with {call.value!r}; the vocabulary "
                "'register' has read {}, write {value} and cas {old, new}"
            )
    if done is None or done.type is OpType.INFO:
        return operation_of(pair, given)
    answer = fields_of(done)
    if done.type is OpType.FAIL:
        mismatch = isinstance(given, Cas) and answer.get("result") == "mismatch"
        return operation_of(pair, given, False) if mismatch else None
    if not isinstance(given, Read):
        return operation_of(pair, given, True if isinstance(given, Cas) else None)
    if "value" not in answer:
        raise HistoryError(f"op {done.index} is an ok read without a value: {done.value!r}")
    return operation_of(pair, given, distinct(answer["value"]))


class RegisterLinearizable(_Linearizable):
    """One register with reads, writes and compare-and-set, initially null."""

    name = "linearizable-register"
    doc = "reads, writes and compare-and-sets of one register are linearizable"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the vocabulary "register"."""
        del case
        pairs = {pair.invoke.index: pair for pair in history.pairs}
        found = [_register_operation(pair) for pair in history.pairs]
        operations = [operation for operation in found if operation is not None]
        model = Register(None)
        outcome = check_operations(model, operations, timeout_s=time_limit_s, limits=self._limits)

        def tell(failure: Failure, proof: Certificate) -> Told:
            del proof
            said = {
                operation.id: (
                    f"process {operation.client_id} did "
                    f"{model.describe_operation(operation.input, operation.output)} "
                    f"{where(pairs[operation.id])}"
                )
                for operation in operations
            }
            states = sorted({survivor.state_text for survivor in failure.survivors})
            refusal = "but no order of the operations that respects real time allows it"
            then = f": by then {' or '.join(states)}" if states else ""
            text = [f"P{said[failure.operation][1:]}, {refusal}{then}."]
            offenders = _offenders(failure)
            if len(offenders) > 1:
                small = "" if failure.core_minimal else " (not proven minimal)"
                text.append(f"With these it is a contradiction whatever the others did{small}:")
                text.extend(f"P{said[index][1:]}." for index in offenders[1 : 1 + CORE_SHOWN_MAX])
                if len(offenders) > 1 + CORE_SHOWN_MAX:
                    text.append(f"{len(offenders) - 1 - CORE_SHOWN_MAX} more are not shown.")
            failing = failure.operation
            return Told(said[failing], text, offenders, _rule(pairs[failing]))

        return judged(self.name, model, operations, outcome, tell=tell, limits=self._limits)
