"""Histories that others recorded, as runs of a store: which model judges them, and by key or not.

The case of such a run says both: its one checker is the model, and its workload has an option
`independent` if values are known to be `[key value]` tuples (`harness.independent`) or known not to
be. A model judges runs through `ModelChecker`.
"""

from __future__ import annotations

from typing import Any, Final

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, History, ModelSettings
from harness.plugins import Checker

IMPORTED: Final = "imported"
"""The target, the workload and the environment of such runs."""
_INDEPENDENT: Final = "independent"


def imported_case(model: str, *, independent: bool | None = None) -> Case:
    """The case of a history that others recorded, and that this model judges."""
    options = {} if independent is None else {_INDEPENDENT: independent}
    return Case(
        seed=0,
        target=IMPORTED,
        workload=IMPORTED,
        workload_options=options,
        faults=(),
        checkers=(model,),
    )


def model_of(case: Case) -> str | None:
    """The model that judges an imported history; `None` for runs, which checkers judge."""
    if case.workload != IMPORTED:
        return None
    if len(case.checkers) != 1:
        raise UsageError("the case of an imported history names no model; import its file again")
    return case.checkers[0]


def independence_of(case: Case) -> bool | None:
    """Whether values are `[key value]` tuples; `None` where their shape decides.

    A run is judged key by key where this is true.
    """
    option = case.workload_options.get(_INDEPENDENT) if case.workload == IMPORTED else None
    return option if isinstance(option, bool) else None


def without_independence(case: Case) -> Case:
    """The case of the history of one key."""
    (model,) = case.checkers
    return imported_case(model, independent=False)


class ModelChecker(Checker):
    """A model as a checker of imported runs."""

    api_version = 1

    def __init__(self, model: Any) -> None:
        """`model` is a `harness.plugins.HistoryModel`."""
        self.model = model
        self.name: str = model.name
        self.doc: str = model.doc

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the words of the model."""
        settings = ModelSettings(independent=independence_of(case))
        check = self.model.prepare(history, settings)
        result: CheckResult = check.check(time_limit_s=time_limit_s, draw=False)[0]
        return result
