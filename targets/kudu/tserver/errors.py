"""Refusals of a tablet server, and the limits beyond which it refuses (THROTTLED)."""

from __future__ import annotations

from typing import Final

from targets.kudu.messages import TabletError, TabletErrorCode

RESULTS_MAX: Final = 20_000
"""Results of writes that a tablet remembers; writes under way may come on top."""
ROW_ERRORS_MAX: Final = 500_000
"""Errors of rows in these results."""
CLIENTS_MAX: Final = 50_000
"""Clients that a tablet remembers."""
CLIENTS_KEPT: Final = 1000
"""Clients that a tablet remembers no matter how long ago they wrote."""
WRITES_WAITING_MAX: Final = 256
"""Writes that wait for their commit."""
WRITES_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
READS_WAITING_MAX: Final = 1024
"""Reads that wait for their timestamp."""


class TabletRefusedError(Exception):
    """Ends a request; the tablet service answers with `error`."""

    def __init__(self, code: TabletErrorCode, message: str, *, indeterminate: bool = False) -> None:
        super().__init__(message)
        self.error = TabletError(code, message, indeterminate)
