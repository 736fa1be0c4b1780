"""list-append and rw-register: transactional isolation, checked by `checkers.elle`.

That package is imported where it is used: it brings numpy, and listing plug-ins must stay quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkers._elle_certificate import certified
from checkers._transactions import mops_of, transactions_of
from harness.errors import UsageError
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Pair, Verdict

if TYPE_CHECKING:
    from checkers.elle import ElleResult
    from checkers.elle.columns import Columns

__all__ = ["ListAppend", "RwRegister"]

DEFAULT_MODELS: Final = ("strict-serializable",)
LABEL_CHARS_MAX: Final = 200
CASES_TOLD_MAX: Final = 4
DRAWINGS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class _Check:
    """Transactions, ready to be checked; the history has their words, `columns` what counts."""

    name: str
    history: History
    columns: Columns
    settings: ModelSettings

    @property
    def operations(self) -> int:
        """How many transactions will be checked."""
        return len(self.history.pairs)

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge; see `harness.plugins.PreparedCheck`."""
        found = self._judge(self.settings.consistency_models or DEFAULT_MODELS, time_limit_s)
        result, proof = certified(found, self.history, self.name, self._promised())
        cases = [case for shown in result.anomalies.values() for case in shown]
        blamed = dict.fromkeys(index for case in cases for index in case.operations)
        text = sentences(result)
        details = details_of(result, self.operations)
        if proof is not None:
            text.append(f"Certificate: {proof['text']}.")
            details["proof"] = proof
        judged = CheckResult(
            self.name, result.verdict, result.reason, tuple(text), tuple(blamed), details
        )
        if not draw or result.verdict is not Verdict.INVALID:
            return judged, None
        labels = {pair.invoke.index: _label(pair) for pair in self.history.pairs}
        return judged, Counterexample(None, tuple(blamed), (), labels)

    def _promised(self) -> list[str]:
        """What may be assumed of single keys."""
        flags = ("linearizable_keys", "sequential_keys", "wfr_keys")
        return [flag.replace("_", "-") for flag in flags if getattr(self.settings, flag)]

    def _judge(self, models: Sequence[str], time_limit_s: float) -> ElleResult:
        from checkers.elle import check_list_append, check_rw_register

        if self.columns.writes_are == "append":
            return check_list_append(
                self.columns, consistency_models=models, time_limit_s=time_limit_s
            )
        return check_rw_register(
            self.columns,
            consistency_models=models,
            linearizable_keys=self.settings.linearizable_keys,
            sequential_keys=self.settings.sequential_keys,
            wfr_keys=self.settings.wfr_keys,
            time_limit_s=time_limit_s,
        )


def _label(pair: Pair) -> str:
    """What a transaction did, in EDN's manner."""
    text = "; ".join(" ".join(_atom(item) for item in mop) for mop in mops_of(pair) or ())
    return text if len(text) <= LABEL_CHARS_MAX else f"{text[: LABEL_CHARS_MAX - 3]}..."


def _atom(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, list):
        return f"[{' '.join(_atom(item) for item in value)}]"
    return str(value)


def sentences(result: ElleResult) -> list[str]:
    """The first cases of every anomaly in words, and what else there is to say."""
    text: list[str] = []
    for name, shown in result.anomalies.items():
        text.append(f"{name} ({result.counts.get(name, len(shown))} found):")
        for case in shown[:CASES_TOLD_MAX]:
            text.extend(f"  {sentence}" for sentence in case.text)
    text.extend(result.notes)
    return text


def details_of(result: ElleResult, operations: int) -> dict[str, Any]:
    """What `harness check --json` and the pages want to know of a check of `operations`."""
    drawings = [
        case.drawing
        for shown in result.anomalies.values()
        for case in shown
        if case.drawing is not None
    ]
    return {
        "operations": operations,
        "configurations": 0,
        "anomalies": sorted(result.anomalies),
        "counts": dict(result.counts),
        "not": list(result.not_),
        "also_not": list(result.also_not),
        "drawings": drawings[:DRAWINGS_MAX],
        **{key: value for key, value in result.statistics.items() if key != "operations"},
    }


def refuse_version_orders(settings: ModelSettings, why: str) -> None:
    """Raise `UsageError` for assumptions about registers, where the versions are none of theirs."""
    for flag in ("linearizable_keys", "sequential_keys", "wfr_keys"):
        if getattr(settings, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} says how versions of registers are ordered, and "
                f"{why}; use it with --elle rw-register"
            )


class ListAppend:
    """Transactions of appends to lists and reads of whole lists."""

    api_version = 1
    name = "list-append"
    doc = "transactions that append to lists and read them: Elle's anomalies and models"
    kind = "elle"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> _Check:
        """See `HistoryModel`."""
        refuse_version_orders(settings, "lists show their order")
        return _prepared(self.name, transactions_of(ops), settings, "append")


class RwRegister:
    """Transactions of writes and reads of registers, where each value is written once."""

    api_version = 1
    name = "rw-register"
    doc = "transactions that write and read registers: Elle's anomalies and models"
    kind = "elle"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> _Check:
        """See `HistoryModel`."""
        return _prepared(self.name, ops, settings, "w")


def _prepared(name: str, ops: Iterable[Op], settings: ModelSettings, writes_are: str) -> _Check:
    from checkers.elle.columns import columns_of
    from checkers.elle.models import check_names

    check_names(settings.consistency_models, ())
    history = ops if isinstance(ops, History) else History(ops)
    # Raises for what is no such transaction.
    columns = columns_of(history, writes_are=writes_are)
    return _Check(name, history, columns, settings)
