"""Elle over the transactions of a run; what is checked is that of the models of foreign histories.

What it found is told more briefly here, since the cases stand in the details of the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from checkers.foreign.transactions import ElleModel, ListAppend, RwRegister, blamed, refuted
from harness.ops import CheckResult, History, ModelSettings
from harness.plugins import Checker

if TYPE_CHECKING:
    from checkers.elle.check import ElleResult

_SENTENCES_MAX = 60
_OPERATIONS_MAX = 64
_DRAWINGS_MAX = 4


def _sentences(result: ElleResult) -> tuple[str, ...]:
    """The first case of each anomaly in words, and how many there are."""
    lines: list[str] = []
    for name, cases in result.anomalies.items():
        count = result.counts[name]
        lines.append(f"{name}, found {count} time{'s' if count > 1 else ''}:")
        lines += cases[0].text
    lines += result.notes
    if len(lines) > _SENTENCES_MAX:
        lines = [*lines[:_SENTENCES_MAX], f"... and {len(lines) - _SENTENCES_MAX} more lines."]
    return tuple(lines)


def _details(result: ElleResult) -> dict[str, Any]:
    return {
        **refuted(result, _DRAWINGS_MAX),
        "statistics": dict(result.statistics),
        "anomalies": {
            name: [
                {
                    "text": list(case.text),
                    "operations": list(case.operations[:_OPERATIONS_MAX]),
                    **case.details,
                }
                for case in cases
            ]
            for name, cases in result.anomalies.items()
        },
    }


def told(name: str, result: ElleResult, proof: Mapping[str, Any] | None) -> CheckResult:
    """What Elle found as the result of the checker `name`."""
    return CheckResult(
        name,
        result.verdict,
        result.reason,
        _sentences(result),
        blamed(result)[:_OPERATIONS_MAX],
        _details(result) | ({} if proof is None else {"proof": dict(proof)}),
    )


class _Elle(Checker):
    """What the checkers of runs share: the check of `model`, told as a `CheckResult`."""

    api_version = 1
    model: ClassVar[type[ElleModel]]
    _settings: ModelSettings

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for what is no transaction of the kind."""
        del case
        end_s = time.monotonic() + time_limit_s
        prepared = self.model().understand(history, self._settings)
        models = self._settings.consistency_models
        result, proof = prepared.proven(models, max(0.0, end_s - time.monotonic()))
        return told(self.name, result, proof)


class ElleListAppend(_Elle):
    """Transactions that append to lists and read them whole."""

    name = "elle-list-append"
    doc = "transactions over lists obey a consistency model (strict serializability, if not told)"
    model = ListAppend

    def __init__(self, *, consistency_models: Sequence[str] = ("strict-serializable",)) -> None:
        """`consistency_models` are those that must hold."""
        self._settings = ModelSettings(consistency_models=tuple(consistency_models))


class ElleRwRegister(_Elle):
    """Transactions that write registers and read them."""

    name = "elle-rw-register"
    doc = (
        "transactions over registers obey a consistency model (strict serializability, if not told)"
    )
    model = RwRegister

    def __init__(
        self,
        *,
        consistency_models: Sequence[str] = ("strict-serializable",),
        linearizable_keys: bool = False,
        sequential_keys: bool = False,
        wfr_keys: bool = False,
    ) -> None:
        """`consistency_models` must hold; the rest says what may be assumed of single keys."""
        self._settings = ModelSettings(
            consistency_models=tuple(consistency_models),
            linearizable_keys=linearizable_keys,
            sequential_keys=sequential_keys,
            wfr_keys=wfr_keys,
        )
