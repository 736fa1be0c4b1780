"""Makes a run's rows when it is sealed, for a lake (`results.lake.tables.made`)."""

from __future__ import annotations

from pathlib import Path

from harness.case import Case
from harness.errors import HistoryError
from harness.ops import History
from results.lake.tables.made import MADE, encoded
from results.lake.tables.row_tables import history_rows
from results.lake.transfer.source import About, source_of

__all__ = ["LakeRows"]


class LakeRows:
    """`rows.arrow`, which `harness ingest` takes instead of the history."""

    api_version = 1
    name = "lake"
    file = MADE
    doc = "Rows of a run as a lake has them, made while it is sealed (docs/lake.md)."

    def made(self, history: History, sealed: Path) -> bytes | None:
        """See `harness.plugins.SealedExtra`; `None` for a history that no table can hold."""
        about = About(name="", id="", case=Case(seed=0), record=None)
        try:
            rows, (counted,) = history_rows([source_of(history, about)])
        except HistoryError:  # which an ingest will say, of this run
            return None
        return encoded(rows, counted, sealed, history.digest())
