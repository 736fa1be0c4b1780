"""Finds out whether registers of a run hold null or the system's default value at first.

Most systems say that an unwritten register has no value. Others answer with the default value of
their language or column: 0 or an empty text. No workload writes these values. So if a register
shows one of them before its first change, the register began with it. A default value that appears
after an acknowledged write is still a violation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from harness.exact import exact
from harness.ops import CheckResult, History, OpType, Pair, Verdict

__all__ = ["judged_from_start"]

_DEFAULTS: Final = (0, "")


def judged_from_start(
    judge: Callable[[Any, float], CheckResult], history: History, time_limit_s: float
) -> CheckResult:
    """Judge a history whose registers hold null at first or, if this is invalid, a default value.

    `judge` gets the initial value and a time limit in seconds. The result for a default value
    counts unless it is also invalid.
    """
    end_s = time.monotonic() + time_limit_s
    strict = judge(None, time_limit_s)
    if strict.verdict is not Verdict.INVALID:
        return strict
    for initial in _defaults_read(history.pairs):
        result = judge(initial, max(0.0, end_s - time.monotonic()))
        if result.verdict is not Verdict.INVALID:
            return replace(
                result, reason=f"{result.reason}; {initial!r} taken as the initial value"
            )
    return strict


def _defaults_read(pairs: Iterable[Pair]) -> list[Any]:
    answers, written = set(), set()
    for pair in pairs:
        asked, done = pair.invoke.value, pair.completion
        if isinstance(asked, Mapping):
            written |= {exact(asked[name]) for name in ("value", "new") if name in asked}
        if pair.invoke.f == "read" and done is not None and done.type is OpType.OK:
            answer = done.value.get("value") if isinstance(done.value, Mapping) else None
            answers.add(exact(answer))
    return [value for value in _DEFAULTS if value in answers - written]
