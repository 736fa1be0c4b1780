"""The parent process of Spark's Python workers on this machine. It imports modules for all of them.

Spark forks one worker per core from one process. Importing Arrow, DuckDB, pandas and our packages
takes 1.1 s of CPU per worker. That is a lot, since a worker's share of a report on 10^5 runs is 9
s. So a session on one machine uses this module instead of `pyspark.daemon`.

PySpark is imported from the folder where it is installed, which has compiled modules. Spark's own
archive has none, so every process would have to compile them (0.4 s).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NAME: Final = "results.spark.daemon"
INSTALLED: Final = ("pyspark", "py4j")
"""The packages that Spark also bundles as archives."""
SHARED: Final = (
    "pyspark.worker",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "duckdb",
    "pandas",
    "results.spark.range_answers",
)
"""Modules to import before forking.

Their threads (OpenBLAS, jemalloc) are recreated in the child, so they survive a fork. A missing
module is not an error here: a task that needs it reports it. pandas is on the list because Arrow
imports an installed pandas on the first conversion from a list.
"""


def settings() -> dict[str, str]:
    """Return Spark settings by which a session on this machine forks its workers from this module.

    They are empty if a new process of this Python could not find this module.
    """
    look = f"import importlib.util as u; raise SystemExit(u.find_spec({NAME!r}) is None)"
    probe = subprocess.run([sys.executable, "-c", look], capture_output=True, check=False)
    return {} if probe.returncode else {"spark.python.daemon.module": NAME}


def without_archives(path: Sequence[str]) -> list[str]:
    """Return `path` without the archives of PySpark and Py4J that the installed PySpark bundles.

    Archives of another Spark stay, since its version differs.
    """
    rest = [entry for entry in path if not entry.endswith(".zip")]
    spark, py4j = (importlib.machinery.PathFinder.find_spec(name, rest) for name in INSTALLED)
    if spark is None or spark.origin is None or py4j is None:
        return [*path]
    bundled = str(Path(spark.origin).parent / "python" / "lib")
    return [entry for entry in path if str(Path(entry).parent) != bundled]


def main() -> None:
    """Run `pyspark.daemon`, which ends with the session."""
    sys.path[:] = without_archives(sys.path)
    from pyspark.daemon import manager

    for name in SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    manager()


if __name__ == "__main__":
    main()
