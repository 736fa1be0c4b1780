"""Judges a history by a model that is guessed from the operations of the history.

A strict and a milder model may fit the same operations. For example, the milder model of a set lets
a read return an old state. If the history is invalid only under the strict model, the verdict is
`unknown`, with a reason that names both models.

A lock may be a semaphore or another kind of lock, so a violation of a guessed model of locks is
`unknown`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from harness.errors import UsageError
from harness.formats import doubt_about
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.judge import load_model
from harness.verdict.readings import EitherCheck

UNDECIDED_MODEL: Final = "suggested-model"
"""The `rule` of the result for a history that is valid only under the milder of two models."""


@dataclass(frozen=True, slots=True)
class DoubtedCheck:
    """The check by a guessed model. A violation may only show that the guess is wrong."""

    name: str
    check_guessed: PreparedCheck
    doubt: str

    @property
    def operations(self) -> int:
        return self.check_guessed.operations

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge by the guessed model; the verdict is `unknown` if it would be `invalid`."""
        result, drawn = self.check_guessed.check(time_limit_s=time_limit_s, draw=draw)
        if result.verdict is not Verdict.INVALID:
            return result, drawn
        reason = f"it is invalid as {self.name}, but {self.doubt}; or say --model {self.name}"
        text = (f"As {self.name}: {result.reason}.", *(f"  {each}" for each in result.explanation))
        details = {"operations": self.operations, "rule": UNDECIDED_MODEL}
        return CheckResult(self.name, Verdict.UNKNOWN, reason, text, details=details), None


def guessed(name: str, history: History, settings: ModelSettings) -> PreparedCheck:
    """Prepare the check by the guessed model called `name`; raises `HistoryError` and `UsageError`.

    If the milder model does not know an operation of the history, only the guessed model judges.
    """
    model = load_model(name)
    check = model.prepare(history, settings)
    milder = model.milder
    if milder is None:
        doubt = doubt_about(name, history)
        return check if doubt is None else DoubtedCheck(name, check, doubt)

    def reason(strict: Verdict, other: Verdict) -> str:
        return (
            f"it is {strict} as {name}, and {other} as {milder}, and nothing says which one it is: "
            f"say --model {name} or --model {milder}"
        )

    return EitherCheck(
        name,
        (f"As {name}", f"As {milder}"),
        check,
        partial(load_model(milder).prepare, history, settings),
        reason,
        UNDECIDED_MODEL,
        only_convictions=True,
    )


def require_decided(name: str, history: History, settings: ModelSettings, limit_s: float) -> None:
    """Raise `UsageError` if the user may mean another model, by which the history is valid."""
    if load_model(name).milder is None and doubt_about(name, history) is None:
        return
    result, _ = guessed(name, history, settings).check(time_limit_s=limit_s, draw=False)
    if result.details.get("rule") == UNDECIDED_MODEL:
        raise UsageError(result.reason)
