"""Elle as plug-ins: over the transactions of a run, and what they found as a `CheckResult`.

They stand outside `checkers.elle` so that listing plug-ins does not import numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from checkers._elle_certificate import certified
from checkers._transactions import transactions_of
from harness.ops import CheckResult, History

if TYPE_CHECKING:
    from checkers.elle.check import ElleResult

__all__ = ["ElleListAppend", "ElleRwRegister"]

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
    drawings = [
        case.drawing for cases in result.anomalies.values() for case in cases if case.drawing
    ]
    return {
        "not": list(result.not_),
        "also_not": list(result.also_not),
        "counts": dict(result.counts),
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
        "drawings": drawings[:_DRAWINGS_MAX],
    }


def _check_result(
    name: str, found: ElleResult, history: History, promised: Sequence[str] = ()
) -> CheckResult:
    result, proof = certified(found, history, name.removeprefix("elle-"), promised)
    operations: dict[int, None] = {}
    for cases in result.anomalies.values():
        for case in cases:
            operations |= dict.fromkeys(case.operations)
    return CheckResult(
        name,
        result.verdict,
        result.reason,
        _sentences(result),
        tuple(operations)[:_OPERATIONS_MAX],
        _details(result) | ({} if proof is None else {"proof": proof}),
    )


class ElleListAppend:
    """Transactions that append to lists and read them whole."""

    api_version = 1
    name = "elle-list-append"
    doc = "transactions over lists obey a consistency model (strict serializability, if not told)"

    def __init__(self, *, consistency_models: Sequence[str] = ("strict-serializable",)) -> None:
        """`consistency_models` are those that must hold."""
        self._models = tuple(consistency_models)

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for what is no transaction of appends and reads."""
        from checkers.elle.check import check_list_append

        del case
        transactions = transactions_of(history)
        result = check_list_append(
            transactions, consistency_models=self._models, time_limit_s=time_limit_s
        )
        return _check_result(self.name, result, transactions)


class ElleRwRegister:
    """Transactions that write registers and read them."""

    api_version = 1
    name = "elle-rw-register"
    doc = (
        "transactions over registers obey a consistency model (strict serializability, if not told)"
    )

    def __init__(
        self,
        *,
        consistency_models: Sequence[str] = ("strict-serializable",),
        linearizable_keys: bool = False,
        sequential_keys: bool = False,
        wfr_keys: bool = False,
    ) -> None:
        """`consistency_models` must hold; the rest says what may be assumed of single keys."""
        self._models = tuple(consistency_models)
        self._linearizable_keys = linearizable_keys
        self._sequential_keys = sequential_keys
        self._wfr_keys = wfr_keys

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for what is no transaction of writes and reads."""
        from checkers.elle.check import check_rw_register

        del case
        result = check_rw_register(
            history,
            consistency_models=self._models,
            linearizable_keys=self._linearizable_keys,
            sequential_keys=self._sequential_keys,
            wfr_keys=self._wfr_keys,
            time_limit_s=time_limit_s,
        )
        flags = {
            "linearizable-keys": self._linearizable_keys,
            "sequential-keys": self._sequential_keys,
            "wfr-keys": self._wfr_keys,
        }
        promised = [flag for flag, given in flags.items() if given]
        return _check_result(self.name, result, history, promised)
