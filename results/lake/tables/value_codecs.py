"""The fields of values that have columns, as codecs that make and read rows."""

from __future__ import annotations

from typing import Final

from results.lake.tables.schema import ANSWER, ASKED, EVENT
from results.lake.tables.values import Shredder

ASKS: Final = Shredder("asked", ASKED, ("new", "old", "rows", "value"))
ANSWERS: Final = Shredder(
    "answer", ANSWER, ("masters", "parts", "row", "rows", "tables", "tablets", "value")
)
EVENTS: Final = Shredder(
    "value", EVENT, ("asked", "asked_late", "at", "core", "log", "missing", "pending", "rest")
)
EVENT_KINDS: Final = ("converged", "infrastructure", "leader", "live", "node-exit", "phase")
"""The notes with typed fields; other notes are JSON as a whole."""
