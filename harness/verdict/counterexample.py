"""A picture of invalid results whose checker drew none itself.

Results may come from a file of any version, so unexpected values are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.ops import CheckResult, Counterexample, PartialOrder


def counterexample_of(results: Sequence[CheckResult]) -> Counterexample:
    """The partial linearizations of the first result that has some, else what all of them name."""
    for result in results:
        failure = result.details.get("failure")
        if isinstance(failure, Mapping):
            survivors = failure.get("survivors")
            orders = tuple(
                PartialOrder(
                    _indices(survivor.get("last")),
                    (str(survivor.get("state", "")),),
                    _indices(survivor.get("pending")),
                )
                for survivor in (survivors if isinstance(survivors, list) else ())
                if isinstance(survivor, Mapping)
            )
            failing = next(iter(_indices([failure.get("operation")])), None)
            return Counterexample(failing, _indices(failure.get("core")), orders)
    blamed = dict.fromkeys(index for result in results for index in result.operations)
    return Counterexample(None, tuple(blamed))


def _indices(value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(index for index in listed if isinstance(index, int))
