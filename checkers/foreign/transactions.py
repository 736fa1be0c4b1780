"""list-append and rw-register: transactional isolation, checked by `checkers.elle`.

`ElleModel` and `ElleCheck` serve the checkers of runs, too (`checkers.elle.checkers`), which differ
only in how they tell what was found. `checkers.elle` is imported where it is used: it brings numpy,
and listing plug-ins must stay quick.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from checkers.elle.certificate import certified
from checkers.elle.transactions import mops_of, transactions_of
from checkers.foreign.keyed import OneCheck, by_key
from checkers.foreign.pairs import refuse_initial
from harness.errors import UsageError, clipped
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Pair, Verdict
from harness.plugins import Checker

if TYPE_CHECKING:
    from checkers.elle import ElleResult

DEFAULT_MODELS: Final = ("strict-serializable",)
VERSION_ORDERS: Final = ("linearizable_keys", "sequential_keys", "wfr_keys")
LABEL_CHARS_MAX: Final = 200
CASES_TOLD_MAX: Final = 4
DRAWINGS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class ElleCheck:
    """Transactions that were understood and are ready to be checked.

    `judge` takes `consistency_models`, `anomalies` and `time_limit_s`; `labels` says what each
    transaction did, by the index of its invocation.
    """

    name: str
    history: History
    operations: int
    settings: ModelSettings
    judge: Callable[..., ElleResult]
    labels: Callable[[], dict[int, str]]

    def proven(
        self, models: Sequence[str], time_limit_s: float
    ) -> tuple[ElleResult, dict[str, Any] | None]:
        """What Elle found of `models`, and its certificate, if it is about cases."""
        found = self.judge(
            consistency_models=models, anomalies=self.settings.anomalies, time_limit_s=time_limit_s
        )
        orders = [f for f in VERSION_ORDERS if getattr(self.settings, f) or f in found.promised]
        promised = [order.replace("_", "-") for order in orders]
        return certified(found, self.history, self.name, promised)

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge; see `harness.plugins.PreparedCheck`."""
        models = self.settings.consistency_models or DEFAULT_MODELS
        result, proof = self.proven(models, time_limit_s)
        text = _sentences(result)
        details = _details(result, self.operations)
        if proof is not None:
            text.append(f"Certificate: {proof['text']}.")
            details["proof"] = proof
        core = blamed(result)
        judged = CheckResult(self.name, result.verdict, result.reason, tuple(text), core, details)
        if not draw or result.verdict is not Verdict.INVALID:
            return judged, None
        return judged, Counterexample(None, core, (), self.labels())


def blamed(result: ElleResult) -> tuple[int, ...]:
    """The operations of all cases."""
    cases = [case for shown in result.anomalies.values() for case in shown]
    return tuple(dict.fromkeys(index for case in cases for index in case.operations))


def _label(pair: Pair) -> str:
    """What a transaction did, in EDN's manner."""
    text = "; ".join(" ".join(_atom(item) for item in mop) for mop in mops_of(pair) or ())
    return clipped(text, LABEL_CHARS_MAX)


def _atom(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, list):
        return f"[{' '.join(_atom(item) for item in value)}]"
    return str(value)


def _sentences(result: ElleResult) -> list[str]:
    """The first cases of every anomaly in words, and what else there is to say."""
    text: list[str] = []
    for name, shown in result.anomalies.items():
        text.append(f"{name} ({result.counts.get(name, len(shown))} found):")
        for case in shown[:CASES_TOLD_MAX]:
            text.extend(f"  {sentence}" for sentence in case.text)
    text.extend(result.notes)
    return text


def _details(result: ElleResult, operations: int) -> dict[str, Any]:
    """What `harness check --json` and the pages want to know of a check of `operations`."""
    return {
        "operations": operations,
        "configurations": 0,
        **refuted(result, DRAWINGS_MAX),
        "anomalies": sorted(result.anomalies),
        "notes": list(result.notes),
        **{key: value for key, value in result.statistics.items() if key != "operations"},
    }


def refuted(result: ElleResult, drawings: int) -> dict[str, Any]:
    """Details of a check: how many anomalies, the models they refute, the first `drawings`."""
    cases = [case for shown in result.anomalies.values() for case in shown]
    return {
        "not": list(result.not_),
        "also_not": list(result.also_not),
        "counts": dict(result.counts),
        "drawings": [case.drawing for case in cases if case.drawing][:drawings],
    }


class ElleModel(Checker):
    """A `HistoryModel` of transactions; a `Checker` of runs, too.

    `unordered` says why orders of versions may not be assumed, if so.
    """

    api_version = 1
    kind = "elle"
    unordered: ClassVar[str] = ""

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> OneCheck:
        """See `HistoryModel`."""
        refuse_initial(self.name, settings, "nil")
        return by_key(self.name, ops, settings, partial(self.understand, settings=settings))

    def understand(self, history: History, settings: ModelSettings) -> ElleCheck:
        """The check of one history, whose values are no tuples of key and value."""
        from checkers.elle.models import check_names

        for flag in VERSION_ORDERS if self.unordered else ():
            if getattr(settings, flag):
                raise UsageError(
                    f"--{flag.replace('_', '-')} says how versions of registers are ordered, and "
                    f"{self.unordered}; use it with --elle rw-register"
                )
        check_names(settings.consistency_models, settings.anomalies)
        return self._understood(history, settings)

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge a run; see `Checker`. Raises `HistoryError` like `prepare`."""
        del case
        prepared = self.prepare(history, ModelSettings())
        return prepared.check(time_limit_s=time_limit_s, draw=False)[0]

    @abc.abstractmethod
    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        """The check of `history`; raises `HistoryError` for what is no such transaction."""


class ListAppend(ElleModel):
    """Transactions of appends to lists and reads of whole lists."""

    name = "list-append"
    doc = "transactions that append to lists and read them: Elle's anomalies and models"
    unordered = "lists show their order"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_list_append
        from checkers.elle.infer.columns import columns_of

        history = transactions_of(history)
        judge = partial(decide_list_append, columns_of(history, writes_are="append"))
        return _check(self.name, history, settings, judge)


class RwRegister(ElleModel):
    """Transactions of writes and reads of registers, where each value is written once."""

    name = "rw-register"
    doc = "transactions that write and read registers: Elle's anomalies and models"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_rw_register
        from checkers.elle.infer.columns import columns_of

        promised = {flag: getattr(settings, flag) for flag in VERSION_ORDERS}
        judge = partial(decide_rw_register, columns_of(history, writes_are="w"), **promised)
        return _check(self.name, history, settings, judge)


def _check(
    name: str, history: History, settings: ModelSettings, judge: Callable[..., ElleResult]
) -> ElleCheck:
    def labels() -> dict[int, str]:
        return {pair.invoke.index: _label(pair) for pair in history.pairs}

    return ElleCheck(name, history, len(history.pairs), settings, judge, labels)
