"""Judges a history by a model that is guessed from the operations of the history.

A strict and a milder model may fit the same operations. For example, the milder model of a set lets
a read return an old state. If the history is invalid only under the strict model, the verdict is
`unknown`, with a reason that names both models.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from harness.errors import UsageError
from harness.ops import History, ModelSettings, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.judge import load_model
from harness.verdict.readings import EitherCheck

UNDECIDED_MODEL: Final = "suggested-model"
"""The `rule` of the result for a history that is valid only under the milder of two models."""


def guessed(name: str, history: History, settings: ModelSettings) -> PreparedCheck:
    """Prepare the check by the guessed model called `name`; raises `HistoryError` and `UsageError`.

    If the milder model does not know an operation of the history, only the guessed model judges.
    """
    model = load_model(name)
    check = model.prepare(history, settings)
    milder = model.milder
    if milder is None:
        return check

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
    """Raise `UsageError` if only the milder of two possible models accepts the history."""
    if load_model(name).milder is None:
        return
    result, _ = guessed(name, history, settings).check(time_limit_s=limit_s, draw=False)
    if result.details.get("rule") == UNDECIDED_MODEL:
        raise UsageError(result.reason)
