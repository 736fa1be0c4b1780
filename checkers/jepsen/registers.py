"""The checker `linearizable-registers`: each of several independent registers is linearizable.

This follows `jepsen/tests/linearizable_register.clj`. The checker judges runs in the vocabulary
`registers`, key by key, with the model `cas-register`. Each register is null at first, or all
registers begin with the system's default value (`checkers.registers.initial`). For imported
histories, use `harness check --model cas-register --independent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from checkers.foreign.registers import CasRegister
from checkers.registers.initial import judged_from_start
from harness.errors import HistoryError
from harness.ops import CheckResult, History, ModelSettings, Op
from harness.plugins import Checker
from harness.vocabularies import registers


class RegistersLinearizable(Checker, judges_prefixes=True, version="2"):
    """Checks that each of several registers is linearizable."""

    api_version = 1
    name = "linearizable-registers"
    doc = "reads, writes and compare-and-sets of each key are linearizable, key by key"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge a run; raises `HistoryError` for operations outside the vocabulary."""
        del case
        keyed = History(_with_keys(history), foreign=True)
        return judged_from_start(partial(self._judged, keyed), history, time_limit_s)

    def _judged(self, keyed: History, initial: Any, time_limit_s: float) -> CheckResult:
        settings = ModelSettings(independent=True, initial=initial)
        prepared = CasRegister().prepare(keyed, settings)
        result, _ = prepared.check(time_limit_s=time_limit_s, draw=False)
        return replace(result, checker=self.name)


def _with_keys(history: History) -> Iterable[Op]:
    ops: list[Op] = []
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        if call.f not in registers.CALLS.by_name or not _has_key(call.value):
            raise HistoryError(
                f"op {call.index} invokes {call.f!r} with {call.value!r}; the vocabulary "
                "'registers' has read {key}, write {key, value} and cas {key, old, new}"
            )
        key = call.value["key"]
        rest = {name: value for name, value in call.value.items() if name != "key"}
        ops.append(replace(call, value=[key, rest]))
        if done is not None:
            ops.append(replace(done, value=[key, done.value]))
    return sorted(ops, key=lambda op: op.index)


def _has_key(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("key"), str)
