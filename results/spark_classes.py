"""An archive of the classes that Spark loads, so that its Java starts in half the CPU time.

    python -m results.spark_classes

Most of what a short job costs is loading, verifying and linking some 20,000 classes, the same each
time. Java can write them into an archive once, and map it from then on (class data sharing). The
archive belongs to one version of Spark and of Java; `results.spark` uses it where it is there, and
Java ignores one that does not fit. It takes 180 MB below `~/.cache`, and a minute to make; nobody
needs it.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from harness.cli.output import say

__all__ = ["archive_of", "main", "options"]

HOME: Final = "HARNESS_SPARK_CLASSES"
"""The folder of archives, where it is not below the user's cache."""
_FOLDER: Final = "catalog-harness"
_WARM: Final = """
import sys
from results.spark import get_spark
spark = get_spark("local[2]")
rows = spark.range(1000).selectExpr("id % 7 AS a", "id AS b", "CAST(id AS STRING) AS c")
rows.write.mode("overwrite").parquet(sys.argv[1])
spark.read.parquet(sys.argv[1]).cache().createOrReplaceTempView("t")
spark.sql(
    "WITH x AS (SELECT t.a, SUM(t.b) AS s, COUNT(DISTINCT t.c) AS d FROM t JOIN t u USING (b) "
    "GROUP BY GROUPING SETS ((t.a), ())) "
    "SELECT a, s, d, ROW_NUMBER() OVER (PARTITION BY a ORDER BY s) AS n FROM x ORDER BY a"
).toArrow()
spark.stop()
"""


def archive_of(java: str) -> Path:
    """Where the archive for this Spark and this `check_java()` is, or would be."""
    folder = os.environ.get(HOME) or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _FOLDER
    )
    spark = importlib.metadata.version("pyspark")
    return Path(folder) / f"spark-{spark}-{re.sub(r'[^0-9A-Za-z.]+', '-', java).strip('-')}.jsa"


def options(java: str) -> str:
    """What Java is told: to use the archive, if there is one."""
    archive = archive_of(java)
    if " " in str(archive) or not archive.is_file():
        return ""
    return f" -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def main() -> int:
    """Make it, by a small job whose classes are written at its end."""
    import tempfile

    from results.spark import FRUGAL, check_java, logging_option

    archive = archive_of(check_java())
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(f".{os.getpid()}.part")
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    java = f"{logging_option()} {FRUGAL} {quiet} -XX:ArchiveClassesAtExit={part}"
    submit = f'--driver-java-options "{java}" pyspark-shell'
    with tempfile.TemporaryDirectory(prefix="harness-classes-") as scratch:
        # Java writes it while it ends, after Python has: its output ends last of all.
        subprocess.run(
            [sys.executable, "-c", _WARM, str(Path(scratch) / "rows")],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": submit}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    if not part.is_file():
        raise SystemExit(f"{check_java()} wrote no archive; it has to be of version 13 or newer")
    part.replace(archive)
    say(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
