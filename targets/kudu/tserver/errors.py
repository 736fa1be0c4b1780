"""The error with which a tablet server refuses a request, and limits beyond which it refuses."""

from __future__ import annotations

from typing import Final

from targets.kudu.messages import TabletError, TabletErrorCode

RESULTS_MAX: Final = 20_000
"""Number of remembered write results at which a tablet begins to refuse new writes (THROTTLED).

Writes that were accepted before may exceed the limit.
"""
ROW_ERRORS_MAX: Final = 500_000
"""Number of row errors in remembered results at which a tablet begins to refuse new writes."""
CLIENTS_MAX: Final = 50_000
"""Number of remembered clients at which a tablet begins to refuse new writes."""
CLIENTS_KEPT: Final = 1000
"""The number of latest clients that a tablet remembers, regardless of age."""
WRITES_WAITING_MAX: Final = 256
"""Maximum number of writes per tablet that wait for their commit."""
WRITES_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
READS_WAITING_MAX: Final = 1024
"""Maximum number of reads per tablet that wait until their timestamp is safe."""


class TabletRefusedError(Exception):
    """The tablet server refuses a request; the tablet service sends `error` as the answer."""

    def __init__(self, code: TabletErrorCode, message: str, *, indeterminate: bool = False) -> None:
        super().__init__(message)
        self.error = TabletError(code, message, indeterminate)
