"""The checker `linearizable-catalog`: DDL over the whole catalog.

The checker converts a run's history to operations (`history`). Passes look for contradictions
between two or three answers, and replay the answers in the order of their revisions (`passes`). The
search judges the histories that the passes leave open; it first tries narrowed intervals for lost
answers. Every verdict is proven by a certificate that another method verifies
(`linearizability.certificate`). A certificate that proves nothing is an internal error, and one
that was not confirmed in time makes the verdict `unknown`. Sentences that name the operations
explain an invalid verdict (`sentences`). Time, memory and (if requested) steps limit a search; a
search that reaches a limit is `unknown`, so that no other verdict depends on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import replace as replace_result

from checkers.catalog.history import CatalogHistory, catalog_history, shown_tables
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.part import is_bounded
from checkers.catalog.passes import Contradiction, conflict, narrowed, refute, replay
from checkers.catalog.permits import judge_permitted
from checkers.catalog.sentences import explain_failure, sentence, table_words
from checkers.linearizability import CheckOutcome, Failure, Limits, Result, check_operations
from checkers.linearizability.certificate import Certificate, certify_core
from checkers.linearizability.judged import Told, convicted, judged
from checkers.verdict.invariants import KEY, counted_by_name, invariant_of
from checkers.verdict.search import (
    CORE_SHOWN_MAX,
    Attempt,
    SearchChecker,
    first_order,
    offenders,
    under_permits,
)
from harness.ops import CheckResult, History, Pair, Verdict
from harness.permits import permits_of
from harness.vocabularies import fields_of
from harness.vocabularies.ddl import READS

CONFLICTS_MAX = 3
# share of the remaining time and of the steps, for the attempt with narrowed intervals
NARROWED_SHARE = 0.5


def _named(text: str, pairs: Iterable[Pair]) -> str:
    """`text` with ids of tables replaced by the names under which `pairs` knew them."""
    for pair in pairs:
        call, value = fields_of(pair.invoke), fields_of(pair.completion)
        named = [(call.get("new_name", call.get("name")), value.get("table_id"))]
        named += [(entry[0], entry[1]) for entry in value.get("tables") or ()]
        for name, ident in named:
            if name and ident:
                text = text.replace(f"table {ident} ", f"{table_words(ident, name)} ")
    return text


def _rule(pair: Pair) -> str:
    """The short name of the rule that the failing operation broke; reports group failures by it."""
    result = fields_of(pair.completion).get("result", "ok")
    if pair.invoke.f in READS or is_bounded(pair):
        return "missing" if result == "not-found" else "stale-read"
    return "wrong-ack" if result == "ok" else f"wrong-{result}"


class CatalogLinearizable(SearchChecker):
    """The whole catalog is one linearizable object: names, ids, versions, columns and lists."""

    name = "linearizable-catalog"
    doc = "DDL is linearizable over the whole catalog, lists and renames included"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the vocabulary "ddl".

        A history that is not linearizable is judged again under the profile's permits.
        """
        del case
        end_s = time.monotonic() + time_limit_s
        result = self._strictly(history, end_s)
        looked = {**result.details.get("looked", {})}
        result.details[KEY] = counted_by_name(looked, [invariant_of("answers")])
        if result.verdict is not Verdict.INVALID:
            return result
        return _under_permits(history, result, end_s)

    def _strictly(self, history: History, end_s: float) -> CheckResult:
        converted = catalog_history(history)
        if converted.conflicts:
            return self._conflicting(converted)
        broken = refute(converted.operations)
        if broken is not None:
            proof = certify_core(broken.part, broken.core, minimal=True, limits=self._limits)
            if proof.confirmed_by:
                return self._contradicted(broken, proof, converted)
        model = Catalog(converted.operations, converted.bindings)
        outcome = _replayed(model, converted) or _searched(model, converted, end_s, self._limits)

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
            return Told(sentence(failing), text, offenders(failure), _rule(failing))

        return judged(
            self.name, model, converted.operations, outcome, tell=tell, limits=self._limits
        )

    def _contradicted(
        self, broken: Contradiction, proof: Certificate, converted: CatalogHistory
    ) -> CheckResult:
        """The result of a contradiction found by a pass: sentences for the answers and the rule."""
        rule = _named(broken.rule, (converted.pairs[index] for index in broken.core))
        core = broken.core[: 1 + CORE_SHOWN_MAX]
        text = [f"{sentence(converted.pairs[index])}." for index in core]
        if len(broken.core) > len(core):
            text.append(f"{len(broken.core) - len(core)} more are not shown.")
        text.append(
            f"But {rule}: no order of the operations that respects real time explains "
            f"{'this answer' if len(broken.core) == 1 else f'these {len(broken.core)} answers'}."
        )
        details = {
            "operations": len(converted.operations),
            "unknown": sum(operation.is_unknown for operation in converted.operations),
            "decided_by": f"a pass over the {broken.part.name}",
            "proof": proof.to_json(),
        }
        blamed = converted.pairs[broken.core[0]]
        return convicted(
            self.name, Told(sentence(blamed), text, broken.core, _rule(blamed)), details
        )

    def _conflicting(self, converted: CatalogHistory) -> CheckResult:
        text: list[str] = []
        blamed: list[int] = []
        for each in converted.conflicts[:CONFLICTS_MAX]:
            both = (each.first, each.second)
            blamed += both
            text += [f"{sentence(converted.pairs[index])}." for index in both]
            text.append(f"So {each.text}; a create takes effect once and ids are never reused.")
        if len(converted.conflicts) > CONFLICTS_MAX:
            text.append(f"{len(converted.conflicts) - CONFLICTS_MAX} more of the kind.")
        first = converted.conflicts[0]
        creates = [
            (index, (ident, nonce))
            for index in blamed[:2]
            for ident, nonce in shown_tables(converted.pairs[index])
            if nonce is not None
        ]
        against = conflict(creates, first.text)
        proof = certify_core(against.part, against.core, minimal=True, limits=self._limits)
        assert proof.confirmed_by, "two pairs are enumerated in three steps"
        details = {"conflicts": len(converted.conflicts), "proof": proof.to_json()}
        return convicted(self.name, Told(first.text, text, tuple(blamed), "created-twice"), details)


def _under_permits(history: History, strict: CheckResult, end_s: float) -> CheckResult:
    """The invalid result `strict`, revised under the permits of the history."""
    permits = permits_of(history)
    relaxed = judge_permitted(history, permits, end_s=end_s)
    stuck = ""
    if relaxed is not None:
        strict = replace_result(strict, details={**strict.details, "permit_steps": relaxed.steps})
        pair = next((p for p in history.pairs if p.invoke.index == relaxed.stuck), None)
        stuck = "" if pair is None else f": {sentence(pair)}"
    return under_permits(strict, relaxed, permits, sorted(permits), stuck)


def _replayed(model: Catalog, converted: CatalogHistory) -> CheckOutcome | None:
    """The order of the revisions in the answers, if that order is legal."""
    revisions: dict[int, int] = {}
    for index, pair in converted.pairs.items():
        value = None if pair.completion is None else pair.completion.value
        revision = value.get("revision") if isinstance(value, dict) else None
        if isinstance(revision, int):
            revisions[index] = revision
    if not revisions:
        return None
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
    """The outcome of a search until `end_s`, on the monotonic clock.

    The first attempt uses narrowed intervals. An order that it finds is also an order for the
    original intervals. A core must be found with the original intervals.
    """

    def left_s() -> float:
        return max(0.0, end_s - time.monotonic())

    operations = None
    if any(operation.is_unknown for operation in converted.operations):
        operations = narrowed(converted.operations, is_over=lambda: left_s() == 0.0)
    attempts = []
    if operations is not None:
        narrow = Catalog(operations, converted.bindings)
        attempts.append(Attempt(narrow, operations, NARROWED_SHARE, left_s() * NARROWED_SHARE))
    order, spent = first_order(attempts, limits)
    if order is not None:
        return order
    outcome = check_operations(model, converted.operations, timeout_s=left_s(), limits=limits)
    reason = outcome.reason
    if spent and outcome.result is Result.UNKNOWN:
        reason = f"{reason}; before that, {spent} steps with narrowed intervals found no order"
    return replace(outcome, reason=reason, steps=outcome.steps + spent)
