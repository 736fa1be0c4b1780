"""Reports missing permissions in folders and stores as `UsageError`, since users can fix them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.errors import HarnessError, InfrastructureError, UsageError
from results.facts.problems import Problem

RIGHTS_CODES: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
REFUSED: Final = "refused"
"""The kind of problem that a worker reports if a permission is missing. It ends the report."""


class RefusedError(UsageError):
    """The harness lacks a permission in a folder or an object store."""


def failure_of(error: OSError, text: str) -> HarnessError:
    """Return the error for a failed system call: `RefusedError` if a permission is missing."""
    return (RefusedError if error.errno in RIGHTS_CODES else InfrastructureError)(text)


def is_seen(path: Path) -> bool:
    """Whether `path` exists; `False` if access to its folder is denied."""
    try:
        return path.exists()
    except OSError:
        return False


def raise_if_refused(problems: Iterable[Problem]) -> None:
    """Raise `RefusedError` if a worker reported a missing permission."""
    for problem in problems:
        if problem.kind == REFUSED:
            raise RefusedError(problem.text)


def require_writable(folder: Path, repair: str) -> None:
    """Make a folder if needed, and check that files can be written to it.

    Raises `RefusedError` or `OSError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in RIGHTS_CODES:
            raise
        raise RefusedError(f"{folder} cannot be created: {error.strerror}; {repair}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RefusedError(f"{folder} is not writable; {repair}")
