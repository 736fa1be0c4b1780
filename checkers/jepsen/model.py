"""The base class of history models that judge each answer separately, and the check they make.

A subclass of `StepsModel` lists its operations and implements `judge`, which adds violations to
`Findings`. The same code judges runs and histories of other tools. For runs, `for_run` returns the
model with the options of the workload.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from checkers.foreign.keyed import by_key
from checkers.foreign.model import (
    LABEL_CHARS_MAX,
    NOTHING_OBSERVED,
    bad_op,
    refuse_initial,
    refuse_settings,
)
from checkers.jepsen.steps import Step, steps_of
from checkers.verdict.findings import Findings
from harness.case import Case
from harness.errors import clipped, counted
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Verdict
from harness.plugins import HistoryModel, PreparedCheck
from harness.vocabularies import Vocabulary


@dataclass(frozen=True, slots=True)
class DirectCheck:
    """A prepared check of the model `name` that judges each answer separately, without a search.

    `judge` fills the findings and the details, and returns the reason for a valid result. `labels`
    describes operations for a drawing, by the indices of their invocations.
    """

    name: str
    operations: int
    judge: Callable[[Findings, dict[str, Any]], str]
    labels: Callable[[], Mapping[int, str]]

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge the operations. The time limit is ignored, since there is no search."""
        del time_limit_s
        findings = Findings(self.name)
        details: dict[str, Any] = {}
        valid = self.judge(findings, details)
        result = findings.result(valid, details)
        if not draw or result.verdict is not Verdict.INVALID:
            return result, None
        labels = {at: clipped(text, LABEL_CHARS_MAX) for at, text in self.labels().items()}
        return result, Counterexample(None, result.operations, (), labels)


class StepsModel(HistoryModel):
    """A history model that judges steps.

    `functions` maps the names of operations in Jepsen's form to descriptions of their arguments,
    for error messages. `answered` lists the operations whose answers have a value. `keyed` says
    whether values may be `[key value]`.
    """

    api_version = 1
    vocabulary: ClassVar[Vocabulary[Any]]
    functions: ClassVar[Mapping[str, str]]
    answered: ClassVar[frozenset[str]] = frozenset({"read"})
    keyed: ClassVar[bool] = True
    begins: ClassVar[str] = "empty"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        refuse_initial(self.name, settings, self.begins)
        return self.prepare_steps(ops, settings)

    def prepare_steps(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        """Prepare the check. The caller has made sure that the model supports all `settings`."""
        if self.keyed:
            return by_key(self.name, ops, settings, self.understand)
        return self.understand(ops if isinstance(ops, History) else History(ops))

    def understand(self, history: History) -> DirectCheck:
        """Prepare the check of a history of a single object, whose values contain no keys."""
        steps = steps_of(
            history,
            self.vocabulary,
            self.name,
            functions=self.functions,
            answered=self.answered,
        )
        parsed = []
        for pair, step in zip(history.pairs, steps, strict=True):
            try:
                parsed.append(self.parse(step))
            except ValueError as error:
                done = None if step.answer is None else pair.completion
                raise bad_op(done or pair.invoke, self.name, str(error)) from error
        return self.check_of(parsed)

    def check_of(self, steps: Sequence[Step]) -> DirectCheck:
        """Return the check of these steps. All steps belong to one object."""
        return DirectCheck(
            self.name,
            len(steps),
            partial(self.judge, steps),
            lambda: {step.begin: str(step) for step in steps},
        )

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge a run; raises `HistoryError` for operations outside the vocabulary."""
        model = self.for_run(getattr(case, "workload_options", None) or {})
        return super(StepsModel, model).check(history, case, time_limit_s=time_limit_s)

    def for_run(self, options: Mapping[str, Any]) -> Self:
        """Return the model for runs whose workload has these options."""
        del options
        return self

    @abstractmethod
    def parse(self, step: Step) -> Step:
        """Return the step with comparable values, or raise `ValueError`.

        The error describes the values that the model accepts.
        """

    @abstractmethod
    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        """Add violations, judged cases and gaps to `findings`; return the reason for a valid
        result.

        Further data for reports goes into `details`.
        """


def written_often(values: Iterable[Hashable], noun: str, findings: Findings) -> set[Hashable]:
    """Return the values that were written several times. Each is a gap, since it shows no order.

    `noun` says in the text of the gap what the values are.
    """
    repeated = {value for value, count in Counter(values).items() if count > 1}
    if repeated:
        some = clipped(repr(min(repeated, key=repr)), 40)
        findings.gap(
            f"{counted(len(repeated), noun)}, such as {some}, were written several times; "
            f"only {noun}s that are written once show an order"
        )
    return repeated


def nothing_seen(findings: Findings, reason: str) -> None:
    """Record that no answer could have contradicted another, so that the verdict is not `valid`."""
    findings.gap(reason, rule=NOTHING_OBSERVED)
