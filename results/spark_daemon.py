"""The parent of Spark's Python workers on this machine: what all of them need, it imports once.

Spark forks a worker a core from one process. Left to themselves, each imports Arrow, DuckDB and our
packages, 0.7 s of CPU; a worker's share of a report of 10^5 runs is 9 s. A session of one machine
has this module instead of `pyspark.daemon`.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from typing import Final

__all__ = ["settings"]

NAME: Final = "results.spark_daemon"
SHARED: Final = ("pyspark.worker", "pyarrow.parquet", "duckdb", "results.spark_lake.asking")
"""All stand being forked: their threads (OpenBLAS, jemalloc) are made anew in the child. Whoever
needs one that is missing says so."""


def settings() -> dict[str, str]:
    """Of a session of this machine whose workers run this Python.

    None where that does not find this module without a path that only this process knows.
    """
    look = f"import importlib.util as u; raise SystemExit(u.find_spec({NAME!r}) is None)"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, check=False)
    return {} if found.returncode else {"spark.python.daemon.module": NAME}


def main() -> None:
    """What `python -m` does: as `pyspark.daemon`, which ends with the session."""
    from pyspark.daemon import manager

    for name in SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    manager()


if __name__ == "__main__":
    main()
