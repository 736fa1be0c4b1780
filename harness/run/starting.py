"""Failures to start, in the words of the target: a declared system quotes the line of its file.

Soaks leave such errors as they are, since one failed start among many seeds is no mistake of the
user.
"""

from __future__ import annotations

from harness.errors import StartError
from harness.plan.planning import TargetPlan


class ExplainedStart:
    """A block in which the plan's target explains a `StartError` (`Target.start_failure`)."""

    def __init__(self, plan: TargetPlan) -> None:
        self._plan = plan

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StartError):
            raise self._plan.target.start_failure(self._plan.settings, error) from error
