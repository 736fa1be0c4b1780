"""Objects whose initial value is not recorded in the history.

Jepsen's own registers are nil at first, Knossos's histories begin with 0, and neither is written
down. Unless the user gives an initial value (`--initial`), each of the model's possible values is
tried in turn for the whole history. The history is valid if one of them explains everything, and
invalid only if none does. Other values are not tried: a read of 9 that nothing wrote is a
violation.

If two values explain the history, the first is used, unless it exempts too many reads: a read of
nil is an answer if the register may have held nil, and otherwise a wildcard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from harness.ops import CheckResult, Counterexample, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.coverage import weighed

Judged = tuple[CheckResult, Counterexample | None]


@dataclass(frozen=True, slots=True)
class AssumedCheck:
    """One history with each of `initials`, the likeliest first; `under` prepares each check."""

    initials: Sequence[Any]
    under: Callable[[Any], PreparedCheck]
    first: PreparedCheck

    @property
    def operations(self) -> int:
        return self.first.operations

    def check(self, *, time_limit_s: float, draw: bool) -> Judged:
        """Judge with one initial value after another until one explains the history."""
        end_s = time.monotonic() + time_limit_s
        tries: list[tuple[Any, Judged]] = []
        for number, initial in enumerate(self.initials):
            check = self.under(initial) if number else self.first
            left_s = max(0.0, end_s - time.monotonic())
            judged = check.check(time_limit_s=left_s / (len(self.initials) - number), draw=draw)
            tries.append((initial, judged))
            if weighed(judged[0]).verdict is Verdict.VALID:
                break
        # The first of the best: complete proofs, then proofs that exempt too much, then none.
        initial, judged = min(tries, key=lambda each: _merit(each[1][0]))
        return self._told(judged[0], initial, [each for each, _ in tries]), judged[1]

    def _told(self, result: CheckResult, initial: Any, tried: Sequence[Any]) -> CheckResult:
        details = {**result.details, "initial": _shown(initial)}
        if result.verdict is not Verdict.INVALID:
            if result.verdict is not Verdict.VALID or "looked" not in details:
                return result
            reason = f"{result.reason}; {_shown(initial)} taken as the initial value"
            return replace(result, reason=reason, details=details)
        values = " and ".join(map(_shown, tried))
        text = (
            f"Initial values tried: {values}; if the history began with another one, say so with "
            "--initial VALUE."
        )
        return replace(result, explanation=(*result.explanation, text), details=details)


def named(initial: Mapping[str, Any], key: Hashable, default: Any) -> Any:
    """The value of `key` in a map of initial values, whose keys may have several forms."""
    if isinstance(key, str):
        bare = key.removeprefix(":")
        forms: tuple[str, ...] = (bare, key, f'#"{bare}') if bare != key else (f'#"{key}', key)
    else:
        forms = (repr(key),)
    return next((initial[form] for form in forms if form in initial), default)


def _merit(result: CheckResult) -> tuple[int, int]:
    return result.verdict.rank, weighed(result).verdict.rank


def _shown(value: Any) -> str:
    return "nil" if value is None else repr(value)
