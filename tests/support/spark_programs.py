"""Spark's own programs from the pip package: a master, a worker, a Connect server."""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

# Java moves small tables here for a few seconds: optimising its code costs more than it saves.
FRUGAL = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
SMALL = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.codegen.wholeStage=false",
)
"""Of a server: what `results.spark.session` sets where it starts Spark itself."""


@contextlib.contextmanager
def spark_programs(folder):
    """Starts them, with their logs in a folder, and ends them: `start(name, *words, **environ)`."""
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
    """What a program says once it is ready: the group of `pattern` in its log.

    It takes a port of its own and tells which. A port that was found free for it may have another
    listener by the time it starts, whom we would take for it.
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
    """The URL of a Connect server on the Spark at `master`."""
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
    """The URL of a master with one worker of two cores, whose folders lie below `work`."""
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
