"""Gives the verdict `valid` only if the requested consistency model was proven to hold.

`check` answers as the original Elle does: a model counts as valid if no anomaly refutes it. But
some models have violations without an anomaly that Elle looks for, and an unknown order of versions
may hide an anomaly. So this module decides every requested model separately:

1. A model that `check` refutes is invalid.
2. A model may imply an order of register versions (`promises_of`). A contradiction of that order
refutes this model, but no weaker model.
3. A model with a `Rule` holds if the search in `orders` finds an order of versions that satisfies
the rule. If no such order exists, the model is refuted.
4. A model without a rule holds if a stronger model holds. Otherwise the verdict is `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkers.elle.check import ElleResult, Request, check_columns, request
from checkers.elle.findings import Case, Inference
from checkers.elle.infer.append import infer_append
from checkers.elle.infer.columns import Columns, Transaction, columns_of
from checkers.elle.infer.known_order import shows_own_overwritten
from checkers.elle.infer.orders import TRANSACTIONS_MAX, allowed, contradiction
from checkers.elle.infer.predicate import infer_predicates
from checkers.elle.infer.predicate_columns import PredicateColumns, predicate_columns
from checkers.elle.infer.register import RegisterOptions, infer_register
from checkers.elle.models import canonical, existence_type, friendly, impossible_models, prohibited
from checkers.elle.rules import MEANS, PROVEN_BY, RULES, Rule, promises_of
from harness.ops import History, Verdict

OPERATIONS_MAX: Final = 64
CORE_SHOWN_MAX: Final = 12

MALFORMED: Final = frozenset({"internal", "garbage-read", "incompatible-order"})
"""Anomalies that leave a history's version orders undefined, regardless of the model."""

BLIND_TO_OWN: Final = frozenset({"writes", "reads"})
"""Kinds of rules that do not compare a transaction's reads with each other or with its own writes
(the anomaly `internal`).
"""

BY_EDGES: Final = {
    "append": frozenset({"writes", "reads", "serial"}),
    "w": frozenset({"writes", "reads"}),
    "": frozenset({"writes", "reads", "parallel", "si", "serial"}),
}
"""Map each type of write ("" for predicate reads) to the kinds of rules that `check` decides."""


def decide_list_append(
    source: History | Columns | Iterable[Transaction],
    *,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    time_limit_s: float = 60.0,
) -> ElleResult:
    """Decide each requested model for transactions that append to lists and read lists.

    The errors are the same as for `check_list_append`.
    """
    wanted = request(consistency_models, anomalies, time_limit_s=time_limit_s)
    columns = columns_of(source, writes_are="append")
    return _Decision(columns, lambda columns, _: infer_append(columns), "append", wanted).run()


def decide_rw_register(
    source: History | Columns | Iterable[Transaction],
    *,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    linearizable_keys: bool = False,
    sequential_keys: bool = False,
    wfr_keys: bool = False,
    time_limit_s: float = 60.0,
) -> ElleResult:
    """Decide each requested model for transactions that write and read registers.

    The decision also applies the rules that the original Elle lacks (`RegisterOptions.every_rule`).
    The arguments and errors are the same as for `check_rw_register`.
    """
    wanted = request(consistency_models, anomalies, time_limit_s=time_limit_s)
    columns = columns_of(source, writes_are="w")
    options = RegisterOptions(
        linearizable_keys=linearizable_keys,
        sequential_keys=sequential_keys,
        wfr_keys=wfr_keys,
        every_rule=True,
        deadline_passed=wanted.deadline_passed,
    )

    def infer(columns: Columns, promised: Sequence[str]) -> Inference:
        implied: dict[str, Any] = dict.fromkeys(promised, True)
        return infer_register(columns, replace(options, unknown_writes=bool(implied), **implied))

    return _Decision(columns, infer, "w", wanted).run()


def decide_closed_predicate(
    source: History | PredicateColumns | Iterable[Transaction],
    *,
    universe: Mapping[Any, Any] | None = None,
    consistency_models: Sequence[str] = ("strict-serializable",),
    anomalies: Sequence[str] = (),
    time_limit_s: float = 60.0,
) -> ElleResult:
    """Decide each requested model for transactions with predicate reads.

    A model that the dependency graph cannot decide is `unknown`, unless a stronger model holds.
    """
    wanted = request(consistency_models, anomalies, time_limit_s=time_limit_s)
    columns = predicate_columns(source, universe)
    return _Decision(columns, lambda _columns, _: infer_predicates(columns), "", wanted).run()


@dataclass(frozen=True, slots=True)
class _Decision:
    """The decision on the models that `wanted` requests for a history.

    `kind` is the type of the history's writes ("append" or "w"), or "" with predicate reads.
    """

    columns: Columns
    infer: Callable[[Columns, Sequence[str]], Inference]
    kind: str
    wanted: Request

    def run(self) -> ElleResult:
        named = {
            friendly(MEANS[canonical(model)]) if canonical(model) in MEANS else model: None
            for model in self.wanted.models
        }
        first = self._check(tuple(named), self.wanted.anomalies)
        if first.verdict is Verdict.INVALID or "cycle-search-timeout" in first.present:
            return first
        if not first.statistics:
            return first
        settled = []
        for model in named:
            alone = len(named) == 1 and not self.wanted.anomalies
            result = self._model(canonical(model), first if alone else None)
            if result.verdict is Verdict.INVALID:
                return result
            settled.append(result)
        unknown = [result for result in settled if result.verdict is Verdict.UNKNOWN]
        if first.verdict is Verdict.UNKNOWN or not unknown:
            notes = dict.fromkeys(note for result in (first, *settled) for note in result.notes)
            return replace(first, notes=tuple(notes))
        reason = "; ".join(dict.fromkeys(result.reason for result in unknown))
        return replace(unknown[0], reason=reason)

    def _check(
        self, models: Sequence[str], anomalies: Sequence[str] = (), promised: Sequence[str] = ()
    ) -> ElleResult:
        wanted = replace(
            self.wanted,
            models=tuple(models),
            anomalies=tuple(anomalies),
            forbidden=prohibited(models, anomalies),
        )
        return check_columns(self.columns, lambda columns: self.infer(columns, promised), wanted)

    def _model(self, model: str, result: ElleResult | None = None) -> ElleResult:
        """Decide one model, given by its canonical name.

        `result` is the model's result of `check`. Without it, the method runs the check.
        """
        rule = RULES.get(model)
        name = rule.base if rule and rule.base else model
        result = result or self._check((friendly(name),))
        if rule is None:
            return self._proven(model, result)
        promised = promises_of(model) if self.kind == "w" else ()
        if promised and result.verdict is not Verdict.INVALID:
            implied = self._check((friendly(model),), promised=promised)
            if implied.verdict is Verdict.INVALID:
                return _attributed(implied, model, promised)
        if result.verdict is not Verdict.VALID and "empty-transaction-graph" not in result.present:
            return result
        return self._by_rule(model, rule, result)

    def _by_rule(self, model: str, rule: Rule, result: ElleResult) -> ElleResult:
        odd = MALFORMED & result.present
        if odd and (
            rule.kind not in BLIND_TO_OWN
            or odd != {"internal"}
            or (rule.kind == "reads" and self.kind == "w" and shows_own_overwritten(self.columns))
        ):
            names = ", ".join(sorted(odd))
            reason = f"{friendly(model)} says nothing about histories with {names}, which was found"
            return replace(result, verdict=Verdict.UNKNOWN, reason=reason)
        # The graph contains only the first read of a register in each transaction, so a search must
        # judge later reads.
        read_again = odd and self.kind == "w" and rule.kind == "reads"
        if rule.kind in BY_EDGES[self.kind] and not read_again:
            return result
        holds = allowed(self.columns, rule, self.wanted.deadline_passed) if self.kind else None
        if holds is False:
            return self._impossible(model, rule, result)
        if holds is None and rule.kind not in BY_EDGES[""]:
            return self._proven(model, result)
        if holds is None:
            return replace(result, notes=(*result.notes, self._unsearched()))
        return result

    def _unsearched(self) -> str:
        why = f"of {len(self.columns)} transactions, more than {TRANSACTIONS_MAX}"
        if len(self.columns) <= TRANSACTIONS_MAX:
            why = "within the limits of time and steps"
        return (
            "Not proven: the order of versions is only partly known, and the rest was not "
            "searched for "
            f"{why}; nothing that is known contradicts it."
        )

    def _impossible(self, model: str, rule: Rule, result: ElleResult) -> ElleResult:
        name = existence_type(model)
        core = contradiction(self.columns, rule, self.wanted.deadline_passed)[:OPERATIONS_MAX]
        operations = self.columns.index[core].tolist()
        text = (
            f"No order of the versions that {friendly(model)} allows explains these transactions:",
            *(
                f"Op {index}: {self.columns.render_txn(txn)}."
                for index, txn in zip(operations[:CORE_SHOWN_MAX], core, strict=False)
            ),
        )
        return replace(
            result,
            verdict=Verdict.INVALID,
            reason=f"{name}: not {friendly(model)}",
            anomalies={name: (Case(name, text, tuple(operations)),)},
            counts={name: 1},
            **_fallen(model),
        )

    def _proven(self, model: str, result: ElleResult) -> ElleResult:
        if result.verdict is Verdict.INVALID:
            return result
        stronger = PROVEN_BY.get(model, ("PL-SI",))
        failed = result
        for other in stronger:
            proof = self._model(other)
            if proof.verdict is Verdict.VALID:
                note = f"{friendly(other)} holds, which implies {friendly(model)}."
                return replace(proof, notes=(*proof.notes, note))
            failed = proof
        return replace(
            failed,
            verdict=Verdict.UNKNOWN,
            reason=(
                f"{friendly(model)} has no check of its own; "
                f"{' or '.join(map(friendly, stronger))} would imply it, but was not found to "
                "hold "
                f"({failed.reason})"
            ),
        )


def _attributed(result: ElleResult, model: str, promised: Sequence[str]) -> ElleResult:
    """Return `result` as a refutation of `model`. The model implies the contradicted order."""
    names = ", ".join(sorted(result.anomalies))
    options = ", ".join(name.replace("_", "-") for name in promised)
    return replace(
        result,
        reason=f"{names}: not {friendly(model)}, which implies {options}",
        promised=tuple(promised),
        **_fallen(model),
    )


def _fallen(model: str) -> dict[str, Any]:
    stronger = impossible_models((), [model]) - {model}
    return {"not_": (friendly(model),), "also_not": tuple(sorted(map(friendly, stronger)))}
