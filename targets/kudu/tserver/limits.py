"""How much a tablet keeps and lets wait; beyond it, requests are turned away (THROTTLED)."""

from __future__ import annotations

from typing import Final

RESULTS_MAX: Final = 20_000
"""Results of writes that are remembered; those under way may come on top."""
ROW_ERRORS_MAX: Final = 500_000
"""Errors of rows in these results."""
CLIENTS_MAX: Final = 50_000
"""Clients that are remembered."""
CLIENTS_KEPT: Final = 1000
"""Clients that are remembered however long ago they wrote last."""
WRITES_WAITING_MAX: Final = 256
"""Writes that wait for their commit."""
WRITES_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
READS_WAITING_MAX: Final = 1024
"""Reads that wait for their timestamp."""
