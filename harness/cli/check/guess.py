"""Checks a history by a model that was guessed from its operations.

The operations may fit two models, a strict and a milder one: under the milder one, sets may show
old states, or queues may deliver an element several times. A history that is invalid only under the
strict model gets the verdict `unknown`, with a reason that names both models.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Final

from harness.errors import HistoryError, UsageError
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.judge import load_model

UNDECIDED_MODEL: Final = "suggested-model"
"""The `rule` of the result for a history that is invalid only under the stricter of two models."""


@dataclass(frozen=True, slots=True)
class GuessedCheck:
    """A check by the model `name`, whose verdict is invalid only if `milder_name` agrees."""

    name: str
    strict: PreparedCheck
    milder_name: str
    milder: PreparedCheck

    @property
    def operations(self) -> int:
        return self.strict.operations

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        end_s = time.monotonic() + time_limit_s
        result, drawn = self.strict.check(time_limit_s=time_limit_s, draw=draw)
        if result.verdict is not Verdict.INVALID:
            return result, drawn
        left_s = max(0.0, end_s - time.monotonic())
        other, _ = self.milder.check(time_limit_s=left_s, draw=False)
        if other.verdict is Verdict.INVALID:
            return result, drawn
        reason = (
            f"it is invalid as {self.name}, and {other.verdict} as {self.milder_name}, and nothing "
            f"says which one it is: say --model {self.name} or --model {self.milder_name}"
        )
        text = (
            f"As {self.name}: {result.reason}.",
            *(f"  {sentence}" for sentence in result.explanation),
            f"As {self.milder_name}: {other.reason}.",
        )
        details = {"operations": self.operations, "rule": UNDECIDED_MODEL}
        return CheckResult(self.name, Verdict.UNKNOWN, reason, text, details=details), None


def guessed(name: str, history: History, settings: ModelSettings) -> PreparedCheck:
    """Prepare the check by a guessed model; raises `HistoryError` and `UsageError`."""
    model = load_model(name)
    check = model.prepare(history, settings)
    if model.milder is not None:
        with contextlib.suppress(HistoryError, UsageError):  # the milder model lacks an operation
            milder = load_model(model.milder).prepare(history, settings)
            return GuessedCheck(name, check, model.milder, milder)
    return check


def require_decided(name: str, history: History, settings: ModelSettings, limit_s: float) -> None:
    """Raise `UsageError` if two models fit and the history is invalid under only one of them."""
    check = guessed(name, history, settings)
    if isinstance(check, GuessedCheck):
        result, _ = check.check(time_limit_s=limit_s, draw=False)
        if result.details.get("rule") == UNDECIDED_MODEL:
            raise UsageError(result.reason)
