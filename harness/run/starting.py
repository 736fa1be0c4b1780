"""Lets the target explain a failed start: a system declared in a file quotes the file's line.

Soaks do not use this: one failed start among many seeds is not a mistake of the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from harness.errors import StartError
from harness.plan.planning import TargetPlan


@contextlib.contextmanager
def explaining_start(plan: TargetPlan) -> Iterator[None]:
    """Let the plan's target explain a `StartError` of the block (`Target.start_failure`)."""
    try:
        yield
    except StartError as error:
        raise plan.target.start_failure(plan.settings, error) from error
