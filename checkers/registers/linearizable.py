"""The checker `linearizable-register` judges one register as the clients of a run saw it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from checkers.foreign.registers import CasRegister
from checkers.linearizability import Failure, check_operations
from checkers.linearizability.proof import AnyOperation, Certificate, Told, judged, offenders
from checkers.registers.initial import judged_from_start
from checkers.verdict.search import SearchChecker, rest_of_core
from checkers.verdict.sentences import where
from harness.errors import HistoryError
from harness.ops import CheckResult, History, Pair
from harness.vocabularies import fields_of


def _rule(pair: Pair) -> str:
    if pair.invoke.f == "read":
        return "stale-read"
    result = "ok" if pair.completion is None else fields_of(pair.completion).get("result", "ok")
    return "wrong-ack" if result == "ok" else f"wrong-{result}"


class _Register(CasRegister):
    name = "linearizable-register"

    def operation(self, pair: Pair) -> AnyOperation | None:
        call = pair.invoke
        if not isinstance(call.value, Mapping):
            raise HistoryError(
                f"op {call.index} invokes {call.f!r} with {call.value!r}; the vocabulary "
                "'register' has read {}, write {value} and cas {old, new}"
            )
        return super().operation(pair)


class RegisterLinearizable(SearchChecker, judges_prefixes=True):
    """Checks that one register is linearizable, with read, write and compare-and-set.

    The register is null at first, or has the system's default value (`checkers.registers.initial`).
    """

    name = "linearizable-register"
    doc = "reads, writes and compare-and-sets of one register are linearizable"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case
        return judged_from_start(partial(self._judged, history), history, time_limit_s)

    def _judged(self, history: History, initial: Any, time_limit_s: float) -> CheckResult:
        pairs = {pair.invoke.index: pair for pair in history.pairs}
        prepared = _Register(initial, ours=True).understand(history)
        model, operations = prepared.model, prepared.parsed
        outcome = check_operations(model, operations, timeout_s=time_limit_s, limits=self._limits)

        def tell(failure: Failure, proof: Certificate) -> Told:
            del proof
            sentences = {
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
            text = [f"P{sentences[failure.operation][1:]}, {refusal}{then}."]
            blamed = offenders(failure)
            blamed_sentences = {index: f"P{sentences[index][1:]}" for index in blamed}
            text += rest_of_core(blamed, blamed_sentences, minimal=failure.core_minimal)
            failing = failure.operation
            return Told(sentences[failing], text, blamed, _rule(pairs[failing]))

        return judged(self.name, model, operations, outcome, tell=tell, limits=self._limits)
