"""The checker `linearizable-register`: one register, as clients of a run saw it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkers.linearizability import Failure, Operation, check_operations
from checkers.linearizability.certificate import Certificate
from checkers.linearizability.judged import Told, judged, operation_of
from checkers.linearizability.models.register import (
    Cas,
    Read,
    Register,
    RegisterInput,
    Write,
    distinct,
)
from checkers.verdict.search import SearchChecker, offenders, rest_of_core
from checkers.verdict.sentences import where
from harness.errors import HistoryError
from harness.ops import CheckResult, History, Op, OpType, Pair


def _fields(op: Op) -> Mapping[str, Any]:
    return op.value if isinstance(op.value, Mapping) else {}


def _rule(pair: Pair) -> str:
    """The short name of the broken rule; reports group failures by it."""
    if pair.invoke.f == "read":
        return "stale-read"
    result = "ok" if pair.completion is None else _fields(pair.completion).get("result", "ok")
    return "wrong-ack" if result == "ok" else f"wrong-{result}"


def _register_operation(pair: Pair) -> Operation[RegisterInput, Any] | None:
    call, done = pair.invoke, pair.completion
    value = _fields(call)
    call_input: RegisterInput
    match call.f:
        case "read":
            call_input = Read()
        case "write" if "value" in value:
            call_input = Write(distinct(value["value"]))
        case "cas" if "old" in value and "new" in value:
            call_input = Cas(distinct(value["old"]), distinct(value["new"]))
        case _:
            raise HistoryError(
                f"op {call.index} invokes {call.f!r} with {call.value!r}; the vocabulary "
                "'register' has read {}, write {value} and cas {old, new}"
            )
    if done is None or done.type is OpType.INFO:
        return operation_of(pair, call_input)
    answer = _fields(done)
    if done.type is OpType.FAIL:
        mismatch = isinstance(call_input, Cas) and answer.get("result") == "mismatch"
        return operation_of(pair, call_input, False) if mismatch else None
    if not isinstance(call_input, Read):
        return operation_of(pair, call_input, True if isinstance(call_input, Cas) else None)
    if "value" not in answer:
        raise HistoryError(f"op {done.index} is an ok read without a value: {done.value!r}")
    return operation_of(pair, call_input, distinct(answer["value"]))


class RegisterLinearizable(SearchChecker):
    """One register with reads, writes and compare-and-set, initially null."""

    name = "linearizable-register"
    doc = "reads, writes and compare-and-sets of one register are linearizable"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the vocabulary "register"."""
        del case
        pairs = {pair.invoke.index: pair for pair in history.pairs}
        read = [_register_operation(pair) for pair in history.pairs]
        operations = [operation for operation in read if operation is not None]
        model = Register(None)
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
