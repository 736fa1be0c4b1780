"""Shows the results of runs: the page of a run, reports on many runs, and a server to browse them.

The function `open` opens a lake or a store as tables (`results.notebook.tables`). A run itself
needs only pyarrow. The functions here import pandas, DuckDB, Jinja2 and PySpark only when they use
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.notebook.tables import Runs, Table, open  # noqa: A004 - `results.open` is read with its package

__all__ = ["Runs", "Table", "open"]


def __getattr__(name: str) -> Any:
    """Import the names of `__all__` on first use, so that `import results` itself stays cheap."""
    if name not in __all__:
        raise AttributeError(f"module 'results' has no attribute {name!r}")
    from results.notebook import tables as opened

    return getattr(opened, name)
