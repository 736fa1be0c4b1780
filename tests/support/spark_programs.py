"""Starts Spark's own programs from the pip package: master, worker and Connect server."""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

# Java runs for only a few seconds on small tables, so optimising its code costs more than it saves.
FRUGAL = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
SMALL = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.codegen.wholeStage=false",
)
"""The settings of a server, as `results.spark.session` sets them when it starts Spark."""


@contextlib.contextmanager
def spark_programs(folder):
    """Return `start(name, *words, **environ)`, which starts a program that logs into `folder`.

    All started programs end with the block.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    running = []

    def start(name, *arguments, **environment):
        log = folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **FRUGAL, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            )
        running.append(process)
        return process, log

    try:
        yield start
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_told(process, log, pattern):
    """Wait until a program's log matches `pattern`; return the pattern's group.

    The program chooses its own port and prints it. If the test chose a free port, another program
    might take it first, and the test would mistake that program for this one.
    """
    end = time.monotonic() + 300
    while time.monotonic() < end:
        ended, text = process.poll() is not None, log.read_text()
        if (told := re.search(pattern, text)) is not None:
            return told[1]
        assert not ended, text[-2000:]
        select.select([], [], [], 0.1)
    raise AssertionError(log.read_text()[-2000:])


def connect_server(start, master, python=sys.executable, **environment):
    """Start a Connect server on the Spark at `master`; return its URL."""
    process, log = start(
        "connect",
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", master, "--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *(word for setting in SMALL for word in ("--conf", setting)),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        PYSPARK_PYTHON=python,
        **environment,
    )
    return "sc://" + wait_told(process, log, r"Connect server started at: (127\.0\.0\.1:\d+)")


def standalone_cluster(start, work, **environment):
    """Start a master and a worker with two cores and folders in `work`; return the URL."""
    master = "org.apache.spark.deploy.master.Master"
    process, log = start(
        "master", master, *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    )
    url = wait_told(process, log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
    worker = "org.apache.spark.deploy.worker.Worker"
    options = ("--cores", "2", "--memory", "2g", "--webui-port", "0")
    process, log = start("worker", worker, *options, "--work-dir", str(work), url, **environment)
    wait_told(process, log, f"(Successfully registered with master) {re.escape(url)}")
    return url
