"""History models and checkers of transactional isolation, which call `checkers.elle`.

The history models are for imported histories. The checkers are for runs, and each applies a history
model with fixed settings. Only the functions that need `checkers.elle` import it, since it loads
numpy and would slow down the listing of plug-ins.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from checkers.elle.recorded import mops_of
from checkers.elle.verdict import certified, told
from checkers.foreign.keyed import by_key
from checkers.foreign.model import LABEL_CHARS_MAX, NOTHING_OBSERVED, refuse_initial
from checkers.foreign.permits import excused
from harness.errors import UsageError, clipped
from harness.ops import (
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
    OpType,
    Pair,
    Verdict,
)
from harness.plugins import Checker, HistoryModel, PreparedCheck

if TYPE_CHECKING:
    from checkers.elle import ElleResult

DEFAULT_MODELS: Final = ("strict-serializable",)
NOTHING_READ: Final = (
    "nothing was checked: no read was answered, and writes alone contradict nothing"
)
_READS: Final = frozenset({"r", ":r", "rp", ":rp"})
VERSION_ORDERS: Final = ("linearizable_keys", "sequential_keys", "wfr_keys")


@dataclass(frozen=True, slots=True)
class ElleCheck:
    """A history of transactions, parsed and ready to be checked with Elle.

    `judge` is called with `consistency_models`, `anomalies` and `time_limit_s`. `labels` returns a
    map from the index of each invocation to a description of the transaction.
    """

    name: str
    history: History
    operations: int
    settings: ModelSettings
    judge: Callable[..., ElleResult]
    labels: Callable[[], dict[int, str]]

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        result = self.judge(
            consistency_models=self.settings.consistency_models or DEFAULT_MODELS,
            anomalies=self.settings.anomalies,
            time_limit_s=time_limit_s,
        )
        orders = [f for f in VERSION_ORDERS if getattr(self.settings, f) or f in result.promised]
        promised = [order.replace("_", "-") for order in orders]
        result, proof = certified(result, self.history, self.name, promised)
        judged = told(self.name, result, proof, self.operations)
        if judged.verdict is Verdict.VALID and not any(map(_was_read, self.history.pairs)):
            details = {**judged.details, "rule": NOTHING_OBSERVED}
            return CheckResult(self.name, Verdict.UNKNOWN, NOTHING_READ, details=details), None
        if not draw or result.verdict is not Verdict.INVALID:
            return judged, None
        return judged, Counterexample(None, judged.operations, (), self.labels())


def _was_read(pair: Pair) -> bool:
    mops = mops_of(pair) if pair.type is OpType.OK else ()
    return any(mop[0] in _READS for mop in mops or () if isinstance(mop, (list, tuple)) and mop)


def _label(pair: Pair) -> str:
    text = "; ".join(" ".join(_atom(item) for item in mop) for mop in mops_of(pair) or ())
    return clipped(text, LABEL_CHARS_MAX)


def _atom(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, list):
        return f"[{' '.join(_atom(item) for item in value)}]"
    return str(value)


class ElleModel(HistoryModel, kind="elle"):
    """A history model of transactions that Elle checks.

    `unordered` says why the model rejects options on the order of versions. It is empty if the
    model allows them.
    """

    api_version = 1
    unordered: ClassVar[str] = ""

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_initial(self.name, settings, "nil")
        return by_key(self.name, ops, settings, partial(self.understand, settings=settings))

    def understand(self, history: History, settings: ModelSettings) -> ElleCheck:
        """Prepare the check of a history whose values are not tuples of key and value."""
        from checkers.elle.models import check_names

        for flag in VERSION_ORDERS if self.unordered else ():
            if getattr(settings, flag):
                raise UsageError(
                    f"--{flag.replace('_', '-')} says how versions of registers are ordered, and "
                    f"{self.unordered}; use it with --elle rw-register"
                )
        check_names(settings.consistency_models, settings.anomalies)
        return self._understood(history, settings)

    @abstractmethod
    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        """Prepare the check; raises `HistoryError` if the model cannot parse a transaction."""


class ListAppend(ElleModel):
    """The history model of transactions that append to lists and read whole lists."""

    name = "list-append"
    doc = "transactions that append to lists and read them: Elle's anomalies and models"
    unordered = "lists show their order"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_list_append
        from checkers.elle.infer.columns import columns_of

        history = _without_creates(history)
        judge = partial(decide_list_append, columns_of(history, writes_are="append"))
        return _check(self.name, history, settings, judge)


class RwRegister(ElleModel):
    """The history model of transactions on registers that write each value only once."""

    name = "rw-register"
    doc = "transactions that write and read registers: Elle's anomalies and models"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_rw_register
        from checkers.elle.infer.columns import columns_of

        promised = {flag: getattr(settings, flag) for flag in VERSION_ORDERS}
        judge = partial(decide_rw_register, columns_of(history, writes_are="w"), **promised)
        return _check(self.name, history, settings, judge)


class ClosedPredicate(ElleModel):
    """The history model of transactions over a declared set of objects (the universe).

    Transactions write objects, and read them by key or by predicate.
    """

    name = "closed-predicate"
    doc = "transactions that read by predicates in a known universe: Elle's anomalies and models"
    unordered = "closed-predicate assumes no order of versions"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_closed_predicate
        from checkers.elle.infer.predicate_columns import predicate_columns

        columns = predicate_columns(history)

        def labels() -> dict[int, str]:
            texts = (columns.render_txn(txn) for txn in range(len(columns)))
            every = (clipped(text, LABEL_CHARS_MAX) for text in texts)
            return dict(zip(columns.index.tolist(), every, strict=True))

        # The transactions are counted by `columns`: `history.pairs` also has the declaration of the
        # universe.
        judge = partial(decide_closed_predicate, columns)
        return ElleCheck(self.name, history, len(columns), settings, judge, labels)


def _check(
    name: str, history: History, settings: ModelSettings, judge: Callable[..., ElleResult]
) -> ElleCheck:
    def labels() -> dict[int, str]:
        return {pair.invoke.index: _label(pair) for pair in history.pairs}

    return ElleCheck(name, history, len(history.pairs), settings, judge, labels)


def _without_creates(history: History) -> History:
    """Return the history without operations that create tables.

    A list can be read before its create, as an empty list, so creates imply no order.
    """
    if not any(op.is_client and op.f == "create" for op in history):
        return history
    kept = (op for op in history if not (op.is_client and op.f == "create"))
    return History(kept, foreign=history.reused > 0)


class _OfRuns(Checker):
    """A checker of runs that applies a history model with fixed settings."""

    api_version = 1
    model: ClassVar[type[ElleModel]]

    def __init__(self, **settings: Any) -> None:
        """Create the checker; `settings` are fields of `ModelSettings`."""
        self._settings = ModelSettings(**settings)

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case
        return self._judge(history, None, time.monotonic() + time_limit_s)

    def _judge(self, history: History, models: Sequence[str] | None, end_s: float) -> CheckResult:
        settings = (
            self._settings
            if models is None
            else replace(self._settings, consistency_models=tuple(models))
        )
        prepared = self.model().understand(history, settings)
        left_s = max(0.0, end_s - time.monotonic())
        result, _ = prepared.check(time_limit_s=left_s, draw=False)
        return replace(result, checker=self.name)


class ElleListAppend(_OfRuns, judges_prefixes=True):
    """The checker of runs whose transactions append to lists and read whole lists."""

    name = "elle-list-append"
    doc = "transactions over lists obey a consistency model (by default strict serializability)"
    model = ListAppend

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge `history` under its permits; raises `HistoryError` for an unknown transaction."""
        end_s = time.monotonic() + time_limit_s
        strict = super().check(history, case, time_limit_s=time_limit_s)
        return excused(strict, history, partial(self._judge, end_s=end_s))


class ElleRwRegister(_OfRuns):
    """The checker of runs whose transactions write and read registers."""

    name = "elle-rw-register"
    doc = "transactions over registers obey a consistency model (by default strict serializability)"
    model = RwRegister
