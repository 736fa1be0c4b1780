"""A soak and a report on a Spark cluster that shares nothing, one worker killed in each: all there?

    harness image build --executor
    python -m bench.results.spark_containers                 # 300 seeds
    python -m bench.results.spark_containers --seeds 24      # a quick look

Two workers, a master, a driver and an S3-compatible server run in a container each, of which none
has a folder of another's or of this machine. `harness soak` puts the seeds into a lake on the
server and `harness report` judges them there; while each is at work, at a fifth of the runs or
with the first results, one worker's container is killed (SIGKILL). Then everything is compared with
what a soak and a report on this machine say of the same seeds, in worker processes and on DuckDB:
the rows of the lake, the folders that it keeps of failing runs with their pages, the tables of the
report, and every answer.

Exit code 1 if anything differs, or if a worker was not killed amid the work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import ROOT, machine
from bench.results.lake_equal import (
    Tables,
    answers_in,
    differences,
    folders_of,
    lake_tables,
    opened,
    result_tables,
    sizes,
)
from harness.environments.docker.image.executor.image import build_executor
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from results.judging.result_lake import ResultLake
from tests.support.spark_containers import SparkContainers, spark_containers

MASTER = "spark://master:7077"
BUG = "NO-LEASE"
DEADLINE_S = 3600.0
POLL_S = 0.2
MANY = 100  # seeds whose results come in several appends
JUDGING = "ls -d /tmp/harness-*"
"""`results.spark.range_checks` has a folder there while it judges."""
SOAKING = "ls -d /tmp/harness-soak-*"
"""A task of a soak has its runs there until they are in the lake."""
STARTED = "ls -d /work/app-*/ | sed -n 2p | grep ."
"""A worker has a folder for each application that it had an executor for: the soak, the report."""


def soak_words(seeds: int, time_limit_s: float) -> list[str]:
    """A soak in which some runs fail; the report's pages are made of all that do."""
    return [
        *("harness", "soak", "--seeds", f"1..{seeds}", "--name", "n", "--label", "v1"),
        *("--workload", "ddl", "--nemesis", "any", "--draw", "3", "--bug", BUG),
        *("--time-limit", f"{time_limit_s:g}", "--artefacts", str(seeds), "--json"),
    ]


class Job:
    """A command in the driver's container, and the worker that is killed meanwhile."""

    def __init__(self, cluster: SparkContainers, words: list[str]) -> None:
        self.cluster = cluster
        self.begin_s = time.monotonic()
        self.answer: tuple[int, str, str] | None = None
        self._thread = threading.Thread(target=self._run, args=(words,), daemon=True)
        self._thread.start()

    def _run(self, words: list[str]) -> None:
        self.answer = self.cluster.run(*words)

    def kill_when(self, worker: str, done: Callable[[], int], enough: int) -> int | None:
        """Kill a worker at some progress, and return that; `None` if the job was over."""
        while self.answer is None:
            if time.monotonic() - self.begin_s > DEADLINE_S:
                raise RuntimeError(f"not done after {DEADLINE_S:.0f} s")
            progress = done()
            if progress >= enough and self.answer is None:
                self.cluster.kill(worker)
                return progress
            time.sleep(POLL_S)
        return None

    def wait(self) -> tuple[int, str, str]:
        """Its exit code and streams."""
        self._thread.join(DEADLINE_S)
        if self.answer is None:
            raise RuntimeError(f"not done after {DEADLINE_S:.0f} s")
        self.took_s = time.monotonic() - self.begin_s
        return self.answer


def object_of(answer: tuple[int, str, str]) -> Any:
    """The JSON that a command printed; it may fail by verdicts only."""
    code, out, err = answer
    if code not in {EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN}:
        raise RuntimeError(f"exit code {code}: {err[-3000:]}")
    return json.loads(out)


def here(words: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """The same command on this machine."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environ},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def runs_in(uri: str, options: dict[str, str]) -> int:
    """The number of runs of the lake by now; 0 while there is none."""
    try:
        return sum(file.rows for file in opened(uri, options).snapshot().files("runs"))
    except Exception:  # noqa: BLE001 - it is not made yet, or about to be
        return 0


def judged_in(uri: str, options: dict[str, str]) -> int:
    """The number of rows of its results by now, one per run and append."""
    try:
        results = ResultLake.beside(uri, options)
        return 0 if results is None else sum(file.rows for file in results.files("runs"))
    except Exception:  # noqa: BLE001 - as above
        return 0


class Figures:
    """Printed figures, and the exit code."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def say(self, name: str, text: object) -> None:
        """Print a line."""
        print(f"{name:24} {text}", flush=True)

    def compare(self, name: str, there: Tables, local: Tables) -> None:
        """Note whether both are the same."""
        lines = differences(there, local)
        count, rows = sizes(local)
        if not rows:
            lines.append(f"{name}: nothing to compare")
        self.say(name, f"{count} with rows, {rows} rows: {'DIFFERENT' if lines else 'equal'}")
        self.wrong += lines


def on_cluster(
    cluster: SparkContainers, seeds: int, time_limit_s: float, scratch: Path, figures: Figures
) -> None:
    """Soak and report there, with a kill in each."""
    uri, options = cluster.uri, cluster.options
    cluster.assert_nothing_shared()
    words = soak_words(seeds, time_limit_s)
    job = Job(cluster, [*words, "--store", "/work/store", "--lake", uri, "--spark-master", MASTER])
    there = seeds

    def soaking() -> int:
        """True once worker-1 runs seeds and a fifth of the runs is there; few appear at once."""
        nonlocal there
        there = runs_in(uri, options)
        if seeds < MANY:
            return cluster.run_in("worker-1", "sh", "-c", SOAKING)[0] == 0
        return there >= seeds // 5

    at = job.kill_when("worker-1", soaking, 1)
    report = object_of(job.wait())
    figures.say("soak", f"{job.took_s:.0f} s, worker-1 killed with {there} of {seeds} runs there")
    figures.say("verdicts", report["verdicts"])
    if at is None:
        raise RuntimeError("the soak was over before a worker was killed")
    if there >= seeds or report["seeds"] != seeds:
        figures.wrong.append("no worker was killed amid the soak, or seeds are missing")
    cluster.start_worker("worker-1")
    words = ["harness", "report", uri, "--spark-master", MASTER, "--output", "/work/report"]
    job = Job(cluster, [*words, "--json"])
    judged = seeds

    def at_work() -> int:
        """True once worker-2 judges and results are there; few appear all at once."""
        nonlocal judged
        judged = judged_in(uri, options)
        if seeds < MANY:
            return cluster.run_in("worker-2", "sh", "-c", STARTED)[0] == 0
        return judged > 0 and cluster.run_in("worker-2", "sh", "-c", JUDGING)[0] == 0

    at = job.kill_when("worker-2", at_work, 1)
    object_of(job.wait())
    figures.say("report", f"{job.took_s:.0f} s, worker-2 killed with {judged} of {seeds} judged")
    if at is None or judged >= seeds:
        figures.wrong.append("no worker was killed amid the report")
    (scratch / "there").mkdir()
    cluster.copy_out("/work/report", scratch / "there")


def exam(cluster: SparkContainers, seeds: int, time_limit_s: float, scratch: Path) -> Figures:
    """Do everything twice and compare."""
    figures = Figures()
    figures.say("machine", machine())
    on_cluster(cluster, seeds, time_limit_s, scratch, figures)
    local = str(scratch / "lake")
    begin_s = time.monotonic()
    words = soak_words(seeds, time_limit_s)
    object_of(here([*words, "--store", str(scratch / "store"), "--lake", local], {}))
    words = ["harness", "report", local, "--engine", "duckdb", "--output", str(scratch / "local")]
    object_of(here([*words, "--json"], {}))
    figures.say("here, both", f"{time.monotonic() - begin_s:.0f} s")
    words = ["harness", "report", cluster.uri, "--engine", "duckdb", "--json"]
    again = here([*words, "--output", str(scratch / "again")], cluster.options)
    object_of(again)
    there = cluster.options
    figures.compare("the lake's tables", lake_tables(cluster.uri, there), lake_tables(local, {}))
    figures.compare(
        "folders of failing runs", folders_of(cluster.uri, there), folders_of(local, {})
    )
    judged = result_tables(cluster.uri, there)
    figures.compare("the report's tables", judged, result_tables(local, {}))
    for name, output in (("answers of Spark", "there/report"), ("answers of DuckDB", "again")):
        figures.compare(name, answers_in(scratch / output), answers_in(scratch / "local"))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--time-limit", type=float, default=5.0, help="of each, simulated s")
    parsed = parser.parse_args()
    image = build_executor(lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as scratch, spark_containers(image) as cluster:
        figures = exam(cluster, parsed.seeds, parsed.time_limit, Path(scratch))
    for line in figures.wrong:
        print(f"WRONG: {line}")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
