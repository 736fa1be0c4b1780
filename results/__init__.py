"""Results of runs: the page of one run, tables over thousands, and a server to browse them.

Checkers and workloads are reached through the registry only; pyarrow, pandas, DuckDB, Jinja2 and
PySpark are imported where they are used, so that a run needs none of them but pyarrow.

`open` opens a lake or a store as tables, see `results.notebook.tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.notebook.tables import Runs, Table, open  # noqa: A004 - `results.open` is read with its package

__all__ = ["Runs", "Table", "open"]


def __getattr__(name: str) -> Any:
    """Import the names of `__all__` on first use: importing `results` alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'results' has no attribute {name!r}")
    from results.notebook import tables as opened

    return getattr(opened, name)
