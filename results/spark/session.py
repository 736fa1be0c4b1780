"""Starts Spark of any kind. `get_spark(url)` returns a session. No other module starts Spark.

| url                      | meaning                                                     |
|--------------------------|-------------------------------------------------------------|
| local[N], local[N,3]     | this machine; 3 attempts per task are the default here      |
| local-cluster[W,C,M]     | W worker processes of C cores and M MB on this machine      |
| spark://host:7077        | a standalone cluster                                        |
| k8s://https://host:6443  | executors that Kubernetes starts (docs/kubernetes)          |
| sc://host:15002          | Spark Connect                                               |

Our code uses only DataFrames, so that everything also works on Connect. Workers run the same Python
interpreter as the driver (`PYSPARK_PYTHON`), times are UTC, and Spark logs little.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from harness.errors import InfrastructureError, UsageError
from harness.support.distributions import (
    PACKAGES_ZIP,
    package_files,
    packages_of,
    plugin_distributions,
    texts_of,
)
from harness.support.java import check_java as check_java_for
from results.spark.address import check_reachable
from results.spark.daemon import settings as daemon_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>\d+|\*)(?:,\s*(?P<attempts>\d+))?\])?")
_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_OURS: Final = re.compile(r"harness\.errors\.\w+: (.+)")
_ATTEMPTS: Final = 3
SILENCE_S: Final = 45.0
CHAIN_MAX: Final = 50
FRUGAL: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java options. Java only moves file names and small tables here, so optimising its code and
verifying Spark's bytecode take more time than they save.
"""
_started_at: dict[str, str] = {}
"""The URL of this process's session, under the key `url`."""


def get_spark(url: str) -> SparkSession:
    """Return this process's session at `url`. A session at another URL is stopped first.

    The session ends with the process, or by `.stop()`. Raises `UsageError` for an unknown URL or a
    missing package. Raises `InfrastructureError` if the address accepts no connection, Java is
    missing or too old, or Spark does not start.
    """
    master = _checked(url)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(
            f"Spark is not installed ({error}); pip install 'catalog-harness[spark]'"
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    before = SparkSession.getActiveSession()
    if before is not None and _started_at.get("url") != master:
        before.stop()
    check_reachable(master)
    if master.startswith("sc://"):
        builder: Any = SparkSession.builder.remote(master)
    else:
        check_java()
        builder = SparkSession.builder.master(master)
        for name, value in _settings(master).items():
            builder = builder.config(name, value)
    try:
        with _quiet_launch():
            session: SparkSession = builder.getOrCreate()
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except Exception as error:
        raise_if_interrupted(error)
        raise InfrastructureError(
            f"Spark does not start at {url!r}: {cause_of(error)}; does the master run, with the "
            "same version of Spark?"
        ) from error
    if "url" not in _started_at:
        atexit.register(_stop)
    _started_at["url"] = master
    return session


def _cores(local: re.Match[str]) -> int:
    return os.cpu_count() or 1 if local["cores"] in {None, "*"} else int(local["cores"])


def cores_here() -> int:
    """Return how many tasks this process's session runs at once, if it is `local[N]`, else 0.

    It is also 0 if workers run another interpreter than the driver.
    """
    local = _LOCAL.fullmatch(_started_at.get("url", ""))
    return _cores(local) if local and _own_python() else 0


def _own_python() -> bool:
    return os.environ.get("PYSPARK_PYTHON") == sys.executable


def _stop() -> None:
    """Stop the session, if it still runs, so that a cluster is notified."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        with contextlib.suppress(Exception):
            session.stop()


def _checked(url: str) -> str:
    """Check a URL and convert it to Spark's form. `local[N]` gets three attempts per task."""
    local = _LOCAL.fullmatch(url)
    if local is not None:
        return f"local[{local['cores'] or '*'},{local['attempts'] or _ATTEMPTS}]"
    if _CLUSTER.fullmatch(url) or re.match(r"(spark|sc|k8s|yarn)(://.+)?$", url):
        return url
    raise UsageError(
        f"--spark-master is {url!r}; it is local[N], local-cluster[workers,cores,MB], "
        "spark://host:port, k8s://https://host:port or sc://host:port"
    )


def _settings(master: str) -> dict[str, str]:
    """Return settings for a quiet Spark without a web server. Workers limit their own memory."""
    settings = {
        "spark.app.name": "harness report",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    local = _LOCAL.fullmatch(master)
    if local is not None:
        # For small tables, 200 partitions and compiled plans take more time than the work.
        settings |= {
            "spark.sql.shuffle.partitions": str(_cores(local)),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        if _own_python():
            settings |= daemon_settings()
    return settings


def check_java() -> str:
    """Return version and path of Spark's Java; raise `InfrastructureError` if it is unusable."""
    return check_java_for("Spark")


def logging_option() -> str:
    """Return the Java option that makes Spark log only errors."""
    return f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"


@contextlib.contextmanager
def _quiet_launch() -> Iterator[None]:
    """Suppress the messages that the launcher of the JVM prints before settings take effect."""
    variables = {
        "PYSPARK_SUBMIT_ARGS": (
            f'--driver-java-options "{logging_option()} {FRUGAL}" pyspark-shell'
        ),
        "SPARK_LAUNCHER_OPTS": FRUGAL,
    }
    missing = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def prepare_workers(spark: SparkSession, *modules: str) -> int:
    """Make our packages and plug-ins importable in workers; return the number of concurrent tasks.

    If workers lack packages of ours, the driver sends these in a zip. Raises `InfrastructureError`
    if workers lack pyarrow, numpy, msgspec, one of `modules`, or a requirement of a plug-in.
    """
    distributions = plugin_distributions()
    missing = _ask_workers(spark, distributions, modules)
    if missing.error or missing.lacking:
        # Executors fetch the zip when they first need it, so it must exist until this process ends.
        folder = Path(tempfile.mkdtemp(prefix="harness-packages-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        sent = [
            distribution
            for distribution in distributions
            if missing.error or distribution.name in missing.lacking
        ]
        spark.addArtifacts(str(packages_zip(folder, sent)), pyfile=True)
        missing = _ask_workers(spark, distributions, modules)
    if missing.lacking and not missing.error:
        raise InfrastructureError(
            f"Spark's workers do not find the plug-ins of {', '.join(missing.lacking)}, although "
            "the driver sent them; install the plug-ins on the workers (docs/spark.md)"
        )
    if missing.error:
        raise InfrastructureError(
            f"Spark's workers cannot run our code: {missing.error}; their Python needs "
            f"{', '.join(('pyarrow', 'numpy', *modules))} and msgspec, and the driver's version "
            "of Python (set PYSPARK_PYTHON to a suitable Python)"
        )
    return missing.slots


class _Found(NamedTuple):
    """The answers of all workers about their packages, combined."""

    error: str  # why the workers cannot run the harness's code; usually empty
    lacking: tuple[str, ...]  # distributions with plug-ins that some worker lacks
    slots: int


def _ask_workers(
    spark: SparkSession, distributions: Sequence[Distribution], modules: Sequence[str]
) -> _Found:
    wanted = tuple(distribution.name for distribution in distributions)

    def probe(batches: Iterable[Any]) -> Iterator[Any]:
        # cloudpickle sends a nested function by value, so `probe` runs without our packages.
        import importlib.metadata

        for _ in batches:
            pass
        lacking = []
        for name in wanted:
            try:
                importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                lacking.append(name)
        error = ""
        try:
            # Import everything that the work needs, so that later tasks find it imported.
            for module in (
                "pyarrow.parquet",
                "results.judging.by_key",
                "results.facts.extraction",
                *modules,
            ):
                importlib.import_module(module)
            from harness.registry import load_plugin, plugin_names

            names = plugin_names("checkers")
            if not names:
                error = "our packages are importable, but their entry points are missing"
            for name in names:
                with contextlib.suppress(Exception):
                    load_plugin("checkers", name)
        except ImportError as missing:
            error = str(missing)
        yield pa.RecordBatch.from_pydict({"error": [error], "lacking": [" ".join(lacking)]})

    # `range` makes one partition per core. This is the only way to count cores on Connect.
    frame: Any = spark.range(1 << 16)
    try:
        with _told_while_waiting():
            ddl = "`error` STRING, `lacking` STRING"
            rows = frame.mapInArrow(probe, ddl).toArrow().to_pylist()
    except Exception as error:
        raise_if_interrupted(error)
        raise InfrastructureError(
            f"Spark's workers failed: {cause_of(error)}; set PYSPARK_PYTHON to a Python of "
            f"version {sys.version_info[0]}.{sys.version_info[1]} with pyarrow, numpy and msgspec"
        ) from error
    return _Found(
        error=next((row["error"] for row in rows if row["error"]), ""),
        lacking=tuple(sorted({name for row in rows for name in row["lacking"].split()})),
        slots=len(rows),
    )


def map_tasks(
    spark: SparkSession, rows: pa.Table, work: Callable[..., Any], ddl: str, tasks: int
) -> pa.Table:
    """Run `work` over rows on Spark. All rows with the same number in the column `task` are a task.

    From Spark 4.1 on, tasks start in the order of their numbers.
    """
    return in_tasks(spark.createDataFrame(rows), tasks).mapInArrow(work, ddl).toArrow()


def in_tasks(frame: Any, tasks: int) -> Any:
    """Partition the rows of a DataFrame by the number in the column `task`."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(tasks, "task")
    return frame.repartition(tasks, "task")


@contextlib.contextmanager
def _told_while_waiting() -> Iterator[None]:
    """Print a note if no executor answers for a while.

    On a cluster that is busy or has no workers, jobs wait forever without a message.
    """

    def tell() -> None:
        text = f"spark: no executor has answered for {SILENCE_S:g} s, and none may come: is there a"
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{text} worker with free cores and memory? Still waiting\n")

    timer = threading.Timer(SILENCE_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def raise_if_interrupted(error: BaseException) -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C is the cause of an error from Spark.

    On Ctrl-C, PySpark cancels all jobs, and errors during this cleanup hide the interrupt. It would
    look like a failed job.
    """
    errors: list[BaseException] = [error]
    for each in errors:
        # The loop extends the list it runs over. It follows contexts, too, which `from None` only
        # hides.
        before = (each.__cause__, each.__context__)
        errors += [cause for cause in before if cause is not None and cause not in errors]
        if isinstance(each, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        if len(errors) > CHAIN_MAX:
            return


def cause_of(error: BaseException) -> str:
    """Return the line of a long Spark error that has the cause: an error in Python or Java.

    Without such a line, return the first line. If the error came through Py4J, return the second
    line, since the first only names the called method.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [match[1] for line in lines if (match := _OURS.match(line)) is not None]
    if ours:
        return ours[-1][:300]
    messages = [line for line in lines if re.match(r"\w*(Error|Exception)\b.*: ", line)]
    messages = messages or [line[11:] for line in lines if line.startswith("Caused by: ")]
    if not messages and len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].removeprefix(": ")]
    return (messages or lines or [type(error).__name__])[-1 if messages else 0][:300]


def packages_zip(folder: Path, distributions: Sequence[Distribution]) -> Path:
    """Write packages, with the metadata of plug-ins, to `folder/harness-packages.zip`.

    Native code cannot be imported from a zip, so checkers from the zip use pure Python instead.
    """
    path = folder / PACKAGES_ZIP
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for distribution in distributions:
            for package in packages_of(distribution):
                for name, file in package_files(package):
                    if not name.endswith(".so"):
                        archive.writestr(name, file.read_bytes())
            for name, text in texts_of(distribution):
                archive.writestr(name, text)
    return path
