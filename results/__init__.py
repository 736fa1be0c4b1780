"""What comes out of runs: the page of one run, tables over thousands, and where to browse them.

Checkers and workloads are reached through the registry only; pyarrow, pandas, DuckDB, Jinja2 and
PySpark are imported where they are used, so that a run needs none of them but pyarrow.

`load` opens a store for notebooks, see `results.frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.frames import Runs, load

__all__ = ["Runs", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `Runs` are imported when somebody wants them: importing `results` is for free."""
    if name not in __all__:
        raise AttributeError(f"module 'results' has no attribute {name!r}")
    from results import frames

    return getattr(frames, name)
