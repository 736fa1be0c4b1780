"""An archive of the classes that Spark loads, so that its Java starts in half the CPU time.

Most of what a short job costs is loading, verifying and linking some 20,000 classes, the same each
time. Java can write them into an archive once, and map it from then on (class data sharing). The
archive belongs to these very jars, at their paths, and to one Java: its name says which, so that
several installations stand beside each other. Java ignores one that does not fit. Who makes it is
`results.spark.classes_making`, by itself after a report on Spark of one machine, or

    python -m results.spark.classes

It takes 180 MB below `~/.cache/catalog-harness`, or in the folder that `HARNESS_SPARK_CLASSES`
names; `HARNESS_SPARK_CLASSES=off` neither makes nor uses any.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["FRUGAL", "HOME", "OFF", "archive_of", "options"]

# Java moves file names and small tables here: optimising its code costs more than it saves, and so
# does verifying the bytecode of Spark's 20,000 classes, which nobody but its authors wrote.
FRUGAL: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
HOME: Final = "HARNESS_SPARK_CLASSES"
"""The folder of archives, where it is not below the user's cache."""
OFF: Final = "off"
_FOLDER: Final = "catalog-harness"
_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""What Spark puts before or behind its jars."""
_PLAIN: Final = re.compile(r"[\w./@+~-]+")  # Java splits at colons, and its launcher at spaces
_JAVA: Final = re.compile(r"Java (\d+) \((.+)\)")


def archive_of(java: str) -> Path | None:
    """Where the archive for this Spark and this `check_java()` is, or would be.

    `None` where there is none to be: it is switched off, there is no home, or Java could not be
    told of the path.
    """
    folder = _folder()
    version, path = match.groups() if (match := _JAVA.fullmatch(java)) else ("", java)
    spark = _spark_home()
    if folder is None or spark is None:
        return None
    fits = hashlib.sha256("\n".join(_fitting(Path(path), spark)).encode()).hexdigest()[:12]
    name = f"spark-{importlib.metadata.version('pyspark')}-java-{version}-{fits}.jsa"
    archive = folder.absolute() / name
    return archive if _PLAIN.fullmatch(str(archive)) else None


def options(java: str) -> str:
    """What Java is told: to use the archive, if there is one."""
    archive = archive_of(java)
    if archive is None or not archive.is_file():
        return ""
    with contextlib.suppress(OSError):  # those that nobody uses go first
        os.utime(archive)
    return f" -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def _folder() -> Path | None:
    """Where archives are: named, or below the user's cache."""
    named = os.environ.get(HOME)
    if named == OFF:
        return None
    if named:
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _FOLDER)
    except RuntimeError:  # nobody's home
        return None


def _spark_home() -> Path | None:
    """Where PySpark looks for its jars."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _fitting(java: Path, spark: Path) -> Iterator[str]:
    """All that Java compares, or that decides what it loads: other lines need another archive."""
    yield FRUGAL
    yield from (f"{name}={os.environ.get(name, '')}" for name in _CLASS_PATH)
    jars: list[Path] = []
    with contextlib.suppress(OSError):
        jars = sorted((spark / "jars").iterdir())
    for file in (java.resolve(), *jars):
        with contextlib.suppress(OSError):
            found = file.stat()
            yield f"{file} {found.st_size} {found.st_mtime_ns}"


if __name__ == "__main__":
    import sys

    from results.spark.classes_making import main

    sys.exit(main())
