"""Refusals of a tablet server, and the limits above which it refuses (THROTTLED)."""

from __future__ import annotations

from typing import Final

from targets.kudu.messages import TabletError, TabletErrorCode

RESULTS_MAX: Final = 20_000
"""Maximum number of remembered write results per tablet; running writes may exceed it."""
ROW_ERRORS_MAX: Final = 500_000
"""Maximum number of row errors in these results."""
CLIENTS_MAX: Final = 50_000
"""Maximum number of remembered clients per tablet."""
CLIENTS_KEPT: Final = 1000
"""The number of latest clients that a tablet remembers, regardless of their age."""
WRITES_WAITING_MAX: Final = 256
"""Maximum number of writes that wait for their commit."""
WRITES_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
READS_WAITING_MAX: Final = 1024
"""Maximum number of reads that wait for their timestamp."""


class TabletRefusedError(Exception):
    """A refused request; the tablet service answers with `error`."""

    def __init__(self, code: TabletErrorCode, message: str, *, indeterminate: bool = False) -> None:
        super().__init__(message)
        self.error = TabletError(code, message, indeterminate)
