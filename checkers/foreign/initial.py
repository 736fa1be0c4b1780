"""Checks histories that do not record the initial value of their object.

Registers of Jepsen are nil at first, and registers of Knossos are 0. Unless the user gives an
initial value (`--initial`), the check assumes each of the model's initial values in turn. The
history is valid if it is valid with one of these values, and invalid only if it is invalid with all
of them.

If several initial values make it valid, the first of them counts, unless too many reads would then
match any value.
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
    """The check of one history with each of `initials`, the likeliest first.

    `under` prepares the check with one initial value. `first` is the check with the first value.
    """

    initials: Sequence[Any]
    under: Callable[[Any], PreparedCheck]
    first: PreparedCheck

    @property
    def operations(self) -> int:
        return self.first.operations

    def check(self, *, time_limit_s: float, draw: bool) -> Judged:
        """Judge the history with one initial value after another until a verdict is valid."""
        end_s = time.monotonic() + time_limit_s
        tries: list[tuple[Any, Judged]] = []
        for number, initial in enumerate(self.initials):
            check = self.under(initial) if number else self.first
            left_s = max(0.0, end_s - time.monotonic())
            judged = check.check(time_limit_s=left_s / (len(self.initials) - number), draw=draw)
            tries.append((initial, judged))
            if weighed(judged[0]).verdict is Verdict.VALID:
                break
        # A valid result is best, then a valid result with too many exempt reads. Of equally good
        # results, the first one counts.
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
    """Return the initial value of `key` from the map of `--initial`, or `default`.

    The map may have the key in several forms, for example with or without a colon.
    """
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
