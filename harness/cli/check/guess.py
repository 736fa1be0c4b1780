"""The check of a model that only the operations of a history suggest.

Operations may fit two models, of which one permits more: sets may show old states, and queues may
deliver an element several times. A guess between them must not convict: if the milder model accepts
the history, the verdict is `unknown`, and the reason names both models.
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
"""The rule of the verdict `unknown` for a history that only the stricter model convicts."""


@dataclass(frozen=True, slots=True)
class GuessedCheck:
    """The check of the model `name`; it convicts only what the model `milder_name` convicts."""

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
    """Prepare the check of a suggested model; raises `HistoryError` and `UsageError`."""
    model = load_model(name)
    check = model.prepare(history, settings)
    if model.milder is not None:
        with contextlib.suppress(HistoryError, UsageError):  # it does not know all operations
            milder = load_model(model.milder).prepare(history, settings)
            return GuessedCheck(name, check, model.milder, milder)
    return check


def require_decided(name: str, history: History, settings: ModelSettings, limit_s: float) -> None:
    """Raise `UsageError` if two models fit, and only the stricter one convicts the history."""
    check = guessed(name, history, settings)
    if isinstance(check, GuessedCheck):
        result, _ = check.check(time_limit_s=limit_s, draw=False)
        if result.details.get("rule") == UNDECIDED_MODEL:
            raise UsageError(result.reason)
