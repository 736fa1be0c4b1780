"""Makes the archive of Spark's classes (`results.spark.classes`), mostly behind a report's back.

After its answer a report on `local[N]` that found no archive begins a process of its own, niced,
which runs a small job whose Java writes its classes when it ends: half a minute of CPU, once. It
says so in one line, and nothing of this fails a report:

| what may happen                        | what comes of it                                       |
|----------------------------------------|--------------------------------------------------------|
| two reports at once                    | a lock: one of them makes it, the other is silent      |
| no right to write, or a disk too full  | nothing is begun                                       |
| killed midway                          | a part, which nobody uses, and the next maker removes  |
| Java makes none                        | a note beside it says why; it is not tried again       |
| other jars, other Java                 | the archives that were used last stay, `KEPT` in all   |
| in CI (`CI` is set)                    | nothing is begun                                       |

The process that makes it holds the lock as a file that it inherits, for as long as it lives.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note, say
from harness.errors import InfrastructureError
from results.spark.classes import FRUGAL, HOME, OFF, archive_of

__all__ = ["KEPT", "SPACE_MIN", "main", "make", "make_soon"]

KEPT: Final = 3
SPACE_MIN: Final = 1_000_000_000
"""Of the disk, in bytes: five times what an archive takes."""
TIME_MAX_S: Final = 900.0
NICE: Final = 19
LOCK: Final = "spark-classes.lock"
WHY: Final = ".failed"
PART: Final = ".part"
_JOB: Final = """
import sys
import pyarrow as pa
from results.spark.session import get_spark, in_tasks
spark = get_spark("local[2]")
def same(batches):
    yield from batches
ddl = "`task` INT, `text` STRING, `bytes` BINARY"
rows = pa.table({"task": pa.array([0, 1], pa.int32()), "text": ["a", None], "bytes": [b"a", b"b"]})
given = in_tasks(spark.createDataFrame(rows), 2).mapInArrow(same, ddl).repartition(1)
placed = given.mapInArrow(same, ddl).cache()
placed.mapInArrow(same, ddl).toArrow()
placed.unpersist()
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


def make_soon(java: str) -> subprocess.Popen[bytes] | None:
    """Begin to make the archive for this `check_java()`, unless there is a reason not to.

    Returns the process, which nobody has to wait for. Nothing is raised: whoever calls has done
    what it was asked for.
    """
    archive = archive_of(java)
    if archive is None or "CI" in os.environ or archive.exists() or _why(archive).exists():
        return None
    with contextlib.suppress(OSError):
        archive.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(archive.parent).free < SPACE_MIN:
            return None
        lock = os.open(archive.parent / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not archive.exists():  # or else it came since
                return _begin(archive, lock)
        finally:
            os.close(lock)
    return None


def _begin(archive: Path, lock: int) -> subprocess.Popen[bytes]:
    """A process that goes on without us, and holds the lock."""
    begun = subprocess.Popen(
        [sys.executable, "-P", "-m", "results.spark.classes_making", "--behind"],
        env=_environment(), cwd=archive.parent, pass_fds=(lock,), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    note(
        f"spark: the classes that it loads are being archived in {archive.parent}, once (180 MB; a "
        f"minute, behind your back), so that it starts in half the CPU time; {HOME}={OFF} has "
        "it left alone"
    )
    return begun


def _environment() -> dict[str, str]:
    """Ours, and modules from where we have them, whatever folder is the current one."""
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path}


def _why(archive: Path) -> Path:
    """The file that says why Java made none."""
    return archive.with_suffix(WHY)


def make(archive: Path) -> None:
    """Make it, by a small job whose classes are written at its end; the lock is the caller's.

    Raises `InfrastructureError` where Java makes none, which a file beside it says from then on.
    """
    for left in archive.parent.glob(f"spark-*{PART}"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="spark-", suffix=PART) as scratch:
        part = Path(scratch, "classes")
        said = _run_job(part)
        if not _is_whole(part):
            text = f"Java wrote no archive of Spark's classes: {said.strip()[-300:] or 'no word'}"
            _why(archive).write_text(f"{text}\n")
            raise InfrastructureError(text)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(archive)
    _why(archive).unlink(missing_ok=True)
    _remove_old(archive)


def _run_job(part: Path) -> str:
    """Run the job in the folder where the part is to be; what it said, which is mostly nothing."""
    from results.spark.session import logging_option

    java = (
        f"{logging_option()} {FRUGAL} -Xlog:disable -Xlog:all=error:stderr "
        f"-XX:ErrorFile={part}.crash -XX:ArchiveClassesAtExit={part}"
    )
    job = subprocess.Popen(
        [sys.executable, "-P", "-c", _JOB, f"{part}.rows"], cwd=part.parent,
        env={**_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(part.parent),
             "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{java}" pyspark-shell'},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        # Java writes it while it ends, after Python has: its output ends last of all.
        return job.communicate(timeout=TIME_MAX_S)[0].decode(errors="replace")
    except BaseException as error:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return f"it took longer than {TIME_MAX_S:g} s"
        raise


def _is_whole(part: Path) -> bool:
    """Whether Java came to the end of it: it writes its first bytes last."""
    try:
        with part.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _remove_old(archive: Path) -> None:
    """Keep this one and, of the others, those that were used last."""
    for suffix in (archive.suffix, WHY):
        used: list[tuple[float, Path]] = []
        for other in archive.parent.glob(f"spark-*{suffix}"):
            with contextlib.suppress(OSError):
                used.append((other.stat().st_mtime, other))
        others = [path for _, path in sorted(used, reverse=True) if path != archive]
        for path in others[KEPT - 1 :]:
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archive for this Spark and this Java, however many there are."""
    from results.spark.session import check_java

    parser = argparse.ArgumentParser(description="Archive the classes that Spark loads.")
    parser.add_argument("--behind", action="store_true", help=argparse.SUPPRESS)
    behind = parser.parse_args(arguments).behind
    try:
        archive = _made(check_java(), behind=behind)
    except (InfrastructureError, OSError) as error:
        note(f"harness: {error}")
        return 1
    say(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")
    return 0


def _made(java: str, *, behind: bool) -> Path:
    """The archive, anew unless it came while we were begun behind a report."""
    archive = archive_of(java)
    if archive is None:
        raise InfrastructureError(f"there is no place for it; let {HOME} name a plain folder")
    if behind:  # the lock is held already, by a file that we inherited
        os.nice(NICE)
        if not archive.exists():
            make(archive)
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make(archive)
    return archive


if __name__ == "__main__":
    sys.exit(main())
