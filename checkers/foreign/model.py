"""The base class of linearizability models for imported histories, and the check that uses it.

A `LinearizabilityModel` translates pairs of ops into the operations of a `Model`.
`LinearizabilityCheck` searches for a legal order, and explains and draws a history without one.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from checkers.foreign.keyed import by_key, wildcard_note
from checkers.linearizability import (
    CheckOutcome,
    Failure,
    Limits,
    Model,
    Result,
    Survivor,
    check_operations,
    observations,
)
from checkers.linearizability.proof import (
    BROKEN,
    AnyOperation,
    Certificate,
    Told,
    details_of,
    judged,
)
from checkers.linearizability.verify import CertificateError
from harness.errors import HistoryError, UsageError, clipped, counted
from harness.ops import (
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
    OpType,
    Pair,
    PartialOrder,
    Verdict,
)
from harness.plugins import HistoryModel, PreparedCheck

NOTHING_HAPPENED: Final = "no operation took effect, so there was nothing to contradict"
UNOBSERVED: Final = "nothing was checked: no two answers could have contradicted each other"
# the rule of the verdict `unknown` for a history without observations
NOTHING_OBSERVED: Final = "nothing-observed"
CORE_TOLD_MAX: Final = 16
LABEL_CHARS_MAX: Final = 200
STATE_CHARS_MAX: Final = 400
# the maximum number of states in a drawing of an order
STATES_MAX: Final = 400
STATE_CHARS_TOTAL_MAX: Final = 4 << 20
_FOR_ALL: Final = frozenset({"independent", "initial"})


def failed(pair: Pair) -> bool:
    """Whether the operation ended as `fail`: in Jepsen and Knossos, it did not happen."""
    return pair.type is OpType.FAIL


def refuse_settings(name: str, settings: ModelSettings) -> None:
    """Raise `UsageError` for settings that only Elle's models have."""
    for field in settings.__struct_fields__:
        if field not in _FOR_ALL and getattr(settings, field):
            flag = field.removesuffix("s") if field == "consistency_models" else field
            raise UsageError(
                f"--{flag.replace('_', '-')} means nothing to the model {name}; it is for "
                "--elle list-append and --elle rw-register"
            )


def refuse_initial(name: str, settings: ModelSettings, begins: str) -> None:
    """Raise `UsageError` if `--initial` is set, because the model `name` has a fixed initial state.

    `begins` describes this state in one word.
    """
    if settings.initial is not UNSET:
        raise UsageError(
            f"--initial is {settings.initial!r}, but everything is {begins} at first to the model "
            f"{name}; it is for registers, kv-string and bank"
        )


def bad_op(op: Op, model: str, known: str) -> HistoryError:
    """Return the error for an op that is not in the vocabulary of `model`.

    `known` describes the ops that the model accepts.
    """
    text = clipped(repr(op.value), 80)
    pair = isinstance(op.value, list) and len(op.value) == 2
    hint = "; if values are [key value], say --independent" if pair else ""
    return HistoryError(
        f"op {op.index} is {op.f!r} with the value {text}; the model {model} accepts {known}{hint}"
    )


def request_of(pair: Pair) -> Op:
    """Return the op whose value counts as the request, by the convention of Jepsen and Knossos.

    This op is the `ok` completion, as in `knossos.history/complete`. If the value of the completion
    is missing or an object, this op is the invocation.
    """
    call, done = pair.invoke, pair.completion
    if done is None or done.type is not OpType.OK or done.value is None:
        return call
    return call if call.value is not None and isinstance(done.value, dict) else done


class Reads(NamedTuple):
    """The numbers of answered reads: `looked` were judged, and `wild` match any value."""

    looked: int
    wild: int


@dataclass(frozen=True, slots=True)
class LinearizabilityCheck:
    """The check of operations against a model. Operation ids are indices of invocations.

    If no answer could have contradicted another answer (`Model.observes`), the verdict is
    `unknown`. But if `nothing_happened` is true, the verdict is `valid`, since some histories of
    Knossos contain only nemesis ops or failed operations. `reads` is set if some reads may match
    any value.
    """

    name: str
    model: Model[Any, Any, Any]
    parsed: Sequence[AnyOperation]
    limits: Limits = dataclasses.field(default_factory=Limits)
    nothing_happened: bool = False
    reads: Reads | None = None

    @property
    def operations(self) -> int:
        return len(self.parsed)

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        outcome = check_operations(
            self.model, self.parsed, timeout_s=time_limit_s, limits=self.limits
        )
        observed = observations(self.model, self.parsed)
        if outcome.result is Result.OK and not observed and not self.nothing_happened:
            return self._unobserved(outcome), None
        by_id = {operation.id: operation for operation in self.parsed}

        def tell(failure: Failure, proof: Certificate) -> Told:
            offenders = (failure.operation, *(n for n in failure.core if n != failure.operation))
            subject = f"{self._did(by_id[failure.operation])} fits nowhere"
            return Told(subject, self._sentences(outcome, failure, proof, by_id), offenders)

        try:
            result = judged(
                self.name, self.model, self.parsed, outcome, tell=tell, limits=self.limits
            )
        except CertificateError as error:
            reason = f"{BROKEN} for the verdict {outcome.result.value}: {error}"
            details = details_of(outcome, None, self.parsed)
            return CheckResult(self.name, Verdict.UNKNOWN, reason, details=details), None
        if not observed:
            # Without observations, the verdict can be valid only because no operation took effect.
            del result.details["looked"]
            if result.verdict is Verdict.VALID:
                result = replace(result, reason=NOTHING_HAPPENED)
        elif self.reads is not None:
            result = self._weighable(result, observed, self.reads)
        if not draw or result.verdict is not Verdict.INVALID:
            return result, None
        assert outcome.failure is not None, "an invalid outcome has a failure"
        return result, self._counterexample(outcome.failure, by_id)

    def _weighable(self, result: CheckResult, observed: int, reads: Reads) -> CheckResult:
        details = {
            **result.details,
            "looked": {"reads": reads.looked, "answers": max(0, observed - reads.looked)},
            "exempt": {"reads": reads.wild},
        }
        reason = result.reason
        if reads.wild and result.verdict is Verdict.VALID:
            reason = f"{reason}; {wildcard_note(reads.wild)}"
        text = result.explanation
        if reads.wild > reads.looked:
            text = (
                f"{wildcard_note(reads.wild)[:1].upper()}{wildcard_note(reads.wild)[1:]}.",
                *text,
            )
        return replace(result, reason=reason, explanation=text, details=details)

    def _unobserved(self, outcome: CheckOutcome) -> CheckResult:
        text = (
            "Writes, lost answers and reads that match any value fit every order; a history needs "
            "answers that show a state."
        )
        details = {**details_of(outcome, None, self.parsed), "rule": NOTHING_OBSERVED}
        return CheckResult(self.name, Verdict.UNKNOWN, UNOBSERVED, (text,), details=details)

    def _label(self, operation: AnyOperation) -> str:
        return clipped(
            self.model.describe_operation(operation.input, operation.said), LABEL_CHARS_MAX
        )

    def _did(self, operation: AnyOperation) -> str:
        return f"{self._label(operation)} by process {operation.client_id} (op {operation.id})"

    def _sentences(
        self,
        outcome: CheckOutcome,
        failure: Failure,
        proof: Certificate,
        by_id: Mapping[int, AnyOperation],
    ) -> list[str]:
        failing = self._did(by_id[failure.operation])
        text = [f"No order of the operations that respects real time explains {failing}."]
        if failure.previous is None:
            text.append("It is the first operation that returns.")
        else:
            text.append(
                f"Everything that returned before it can be explained ({outcome.progress} of "
                f"{counted(outcome.returns, 'operation')}), last "
                f"{self._did(by_id[failure.previous])}."
            )
        states = list(dict.fromkeys(survivor.state_text for survivor in failure.survivors))
        if states:
            listed = " or ".join(clipped(state, LABEL_CHARS_MAX) for state in states[:4])
            more = f", or {counted(len(states) - 4, 'other')}" if len(states) > 4 else ""
            text.append(f"By then, {listed}{more}.")
        others = [number for number in failure.core if number != failure.operation]
        if others and len(others) <= CORE_TOLD_MAX:
            text.append(
                "Together with the following it is a contradiction, however all others ended:"
            )
            text.extend(f"  {self._did(by_id[number])}" for number in others)
        elif others:
            text.append(f"It contradicts {len(others)} other operations, however the rest ended.")
        if failure.projection:
            text.append(f"This is already so if one looks at {failure.projection} alone.")
        size = counted(len(proof.core), "operation")
        minimal = ", none of which can be left out," if proof.minimal else ""
        text.append(f"Certificate: {size}{minimal} confirmed by {proof.confirmed_by}.")
        return text

    def _counterexample(
        self, failure: Failure, by_id: Mapping[int, AnyOperation]
    ) -> Counterexample:
        left = STATE_CHARS_TOTAL_MAX
        orders = []
        for number, survivor in enumerate(failure.survivors):
            states = self._states(survivor, by_id, STATES_MAX if number else len(self.parsed))
            kept = []
            for state in reversed(states):
                left -= len(state)
                if left < 0:
                    break
                kept.append(state)
            orders.append(PartialOrder(survivor.order, tuple(reversed(kept)), survivor.pending))
        labels = {operation.id: self._label(operation) for operation in self.parsed}
        return Counterexample(failure.operation, failure.core, tuple(orders), labels)

    def _states(
        self, survivor: Survivor, by_id: Mapping[int, AnyOperation], most: int
    ) -> list[str]:
        state = self.model.init()
        described = []
        first = len(survivor.order) - most
        for position, number in enumerate(survivor.order):
            operation = by_id[number]
            legal, state = self.model.step(state, operation.input, operation.said)
            if not legal:
                # An order of a projection may be illegal for the whole history, so show only its
                # last state.
                return [clipped(survivor.state_text, STATE_CHARS_MAX)]
            if position >= first:
                described.append(clipped(self.model.describe_state(state), STATE_CHARS_MAX))
        return described


class LinearizabilityModel(HistoryModel):
    """A history model that checks operations against the `Model` that `specification` returns.

    `begins` describes the first state of an object in one word, for models without `--initial`.
    """

    api_version = 1
    begins: ClassVar[str] = "empty"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        refuse_initial(self.name, settings, self.begins)
        return by_key(self.name, ops, settings, self.understand)

    def understand(self, history: History) -> LinearizabilityCheck:
        """Prepare the check of a single object's history, whose values have no keys."""
        parsed = [self.operation(pair) for pair in history.pairs]
        kept = self._reduced([operation for operation in parsed if operation is not None])
        # An empty history does not show that nothing happened.
        idle = len(history) > 0 and all(map(self._did_nothing, history.pairs))
        reads = self._reads(history.pairs)
        return LinearizabilityCheck(
            self.name, self.specification(kept), kept, nothing_happened=idle, reads=reads
        )

    @abc.abstractmethod
    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        """Return the model for `operations`. Most subclasses ignore the operations."""

    @abc.abstractmethod
    def operation(self, pair: Pair) -> AnyOperation | None:
        """Return the operation of `pair`, or `None` if `pair` proves nothing.

        Raises `HistoryError` if an op is not in the vocabulary (see `bad_op`).
        """

    def _reduced(self, operations: list[AnyOperation]) -> list[AnyOperation]:
        return operations

    def _reads(self, pairs: Sequence[Pair]) -> Reads | None:
        del pairs
        return None

    def _did_nothing(self, pair: Pair) -> bool:
        return failed(pair)
