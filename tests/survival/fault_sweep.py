"""Sweep over all calls of the harness: each fails once, and the run must end correctly.

    python -m tests.survival.fault_sweep                          # every point of the simulation
    python -m tests.survival.fault_sweep --env process --points 300 --jobs 4
    python -m tests.survival.fault_sweep --env docker --points 60 --jobs 2
    python -m tests.survival.fault_sweep --env process --point engine:40 --point read:600+

The method is that of SQLite's I/O error tests. One fixed case runs again and again. Each time, the
n-th write, read, descriptor, engine call or checker call of the harness fails
(`tests.survival.fault_injection`), alone or with all later ones. Each run must end in time and
leave nothing behind. It must end with the verdict of the undisturbed run, with `unknown` and a
reason, or with an error of one clear line. With `--bug`, the undisturbed verdict is invalid and
must never become valid. Single points need no undisturbed run. The exit code is 1 if a point broke
these rules.
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.environments import procfs
from harness.environments.warden import CONTROLLER_VARIABLE
from tests.survival.fault_injection import KINDS, Injector

SIM: Final = ("--env", "sim", "--nemesis", "partition-leader", "--time-limit", "3",
              "--interval", "1", "--duration", "1")  # fmt: skip
REAL: Final = ("--target", "http-register", "--workload", "register", "--rate", "100", "--nemesis",
               "kill-leader,partition-leader", "--time-limit", "4", "--interval", "1",
               "--duration", "0.5", "--seed", "1")  # fmt: skip
CASES: Final = {
    "sim": (*SIM, "--seed", "3"),
    "process": ("--env", "process", *REAL),
    "docker": ("--env", "docker", *REAL),
}
BUGS: Final = {
    "sim": (*SIM, "--bug", "NO-LEASE", "--seed", "5"),
    "process": ("--env", "process", *REAL, "--stale"),
    "docker": ("--env", "docker", *REAL, "--stale"),
}
LIMITS_S: Final = {"sim": 60.0, "process": 240.0, "docker": 300.0}
CODES: Final = {0: "valid", 1: "invalid", 2: "unknown"}
POINTS_A_KIND_MIN: Final = 10
LEFTOVERS_S: Final = 60.0
POLL_S: Final = 0.02


class Point(NamedTuple):
    """A run with one fault."""

    kind: str
    nth: int
    lasting: bool

    @classmethod
    def of_text(cls, text: str) -> "Point":
        """Parse `kind:nth`; a `+` after it means that the fault lasts."""
        match = re.fullmatch(rf"({'|'.join(KINDS)}):([1-9]\d*)(\+?)", text)
        if match is None:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a point: write read:600, or read:600+ for a lasting fault; "
                f"the kinds are {', '.join(KINDS)}"
            )
        return cls(match[1], int(match[2]), bool(match[3]))


class Outcome(NamedTuple):
    """The end of the run at one point. `fault` is the broken rule, if any."""

    what: str
    where: str
    fault: str


# --- one run -------------------------------------------------------------------------------------


class Run:
    """`harness run` in a forked child, with an injector."""

    def __init__(self, words: tuple[str, ...], point: Point | None, folder: Path) -> None:
        self.point = point
        self.folder = folder
        folder.mkdir()
        self.begin_s = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_harness(words)
        self.controller = str(procfs.identify(self.pid))

    def _become_harness(self, words: tuple[str, ...]) -> None:
        os.setsid()
        os.chdir(self.folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        point = self.point
        injector = Injector() if point is None else Injector(
            point.kind, point.nth, lasting=point.lasting
        )  # fmt: skip
        descriptor = os.open("told.json", os.O_WRONLY | os.O_CREAT)
        tell = os.write

        from harness import __main__ as program

        real_run = program._run

        def run() -> int:
            try:
                return real_run()
            finally:
                about = {"counts": injector.counts, "failed": injector.failed,
                         "where": injector.where, "modules": [*sys.modules]}  # fmt: skip
                tell(descriptor, json.dumps(about).encode())

        program._run = run
        sys.argv = ["harness", "run", *words, "--reporters", "page", "--quiet", "--json"]
        injector.install()
        program.main()

    def ended(self, limit_s: float) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() - self.begin_s > limit_s:
            os.kill(self.pid, signal.SIGKILL)
            return os.waitpid(self.pid, 0)[1]
        return None

    def told(self) -> dict[str, Any]:
        text = (self.folder / "told.json").read_text() if self.folder.exists() else ""
        return json.loads(text) if text else {}

    def outcome(self, status: int, expected: str, limit_s: float) -> Outcome:
        """Return the outcome, compared with the verdict of the undisturbed run."""
        about = self.told()
        where = about.get("where", "?")
        if about and not about["failed"]:
            return Outcome("not reached", "", "")
        if os.WIFSIGNALED(status):
            hung = time.monotonic() - self.begin_s > limit_s
            return Outcome("hang" if hung else "killed", where, f"signal {os.WTERMSIG(status)}")
        code = os.WEXITSTATUS(status)
        errors = (self.folder / "err").read_text(errors="replace")
        left = self._leftovers()
        if left:
            return Outcome(f"exit {code}", where, f"left behind: {left}")
        if code not in CODES:
            messages = [line for line in errors.splitlines() if line.startswith("harness: ")]
            clear = bool(messages) and "Traceback" not in errors
            return Outcome(f"error {code}", where, "" if clear else f"unclear: {errors[-1500:]}")
        return self._verdict(CODES[code], expected, where)

    def _verdict(self, verdict: str, expected: str, where: str) -> Outcome:
        report = json.loads((self.folder / "out").read_text().splitlines()[-1])
        if report["verdict"] != verdict:
            return Outcome(verdict, where, f"but printed {report['verdict']}")
        if verdict == "unknown":
            reasons = [c["reason"] for c in report["checkers"] if c["verdict"] == "unknown"]
            return Outcome(verdict, where, "" if any(reasons) else "no reason")
        why = [c["reason"] for c in report["checkers"] if c["verdict"] == "invalid"]
        return Outcome(verdict, where, "" if verdict == expected else f"wrong verdict: {why}")

    def _leftovers(self) -> str:
        """Return leftovers of the run, after the time limit of its warden."""
        deadline_s = time.monotonic() + LEFTOVERS_S
        while True:
            leftovers = [*self._processes(), *self._scratch()]
            if not leftovers or time.monotonic() > deadline_s:
                return "; ".join(leftovers)
            time.sleep(0.2)

    def _processes(self) -> list[str]:
        return [
            f"process {process.pid}"
            for process in procfs.all_processes()
            if procfs.environment_of(process.pid)
            .get(CONTROLLER_VARIABLE, "")
            .startswith(self.controller)
            and procfs.is_alive(process)
        ]

    def _scratch(self) -> list[str]:
        names = [path.name for path in Path(tempfile.gettempdir()).glob(f"harness-*-{self.pid}-*")]
        if "docker" in str(self.folder):
            from harness.environments.docker.engine.engine import Engine
            from harness.environments.docker.engine.labels import CONTROLLER_LABEL

            engine = Engine()
            try:
                rows = [*engine.containers(CONTROLLER_LABEL), *engine.networks(CONTROLLER_LABEL)]
            finally:
                engine.close()
            names += [
                row.name for row in rows
                if row.labels[CONTROLLER_LABEL].startswith(f"{self.controller}@")
            ]  # fmt: skip
        return names


# --- all points ----------------------------------------------------------------------------------


def points_of(counts: dict[str, int], points: int | None) -> list[Point]:
    """Return every point, once as a single fault and once as a lasting one.

    With `points`, return a sample of that size in which single and lasting faults alternate. It has
    at least ten points of each kind, or a fifth of `points` if that is less.
    """
    chosen: list[Point] = []
    total = sum(counts.values())
    least = POINTS_A_KIND_MIN if points is None else min(POINTS_A_KIND_MIN, points // len(KINDS))
    for kind in KINDS:
        count = counts[kind]
        share = count if points is None else round(points * count / max(1, total))
        wanted = min(count, max(least, share)) if count else 0
        numbers = sorted({1 + index * count // wanted for index in range(wanted)})
        if points is None:
            chosen += [Point(kind, n, lasting) for n in numbers for lasting in (False, True)]
        else:
            chosen += [Point(kind, n, index % 2 == 1) for index, n in enumerate(numbers)]
    if points is not None:
        _thin(chosen, points, least)
    return chosen


def _thin(chosen: list[Point], points: int, least: int) -> None:
    """Keep this number of points; kinds with many points lose the most."""
    while len(chosen) > points:
        by_kind = collections.Counter(point.kind for point in chosen)
        kind, count = by_kind.most_common(1)[0]
        if count <= least:
            break
        places = [place for place, point in enumerate(chosen) if point.kind == kind]
        del chosen[places[len(places) // 2]]


def sweep(
    env: str,
    *,
    points: int | None,
    jobs: int,
    bug: bool = False,
    only: str | None = None,
    chosen: list[Point] | None = None,
) -> Iterator[tuple[Point, Outcome]]:
    import pyarrow.parquet  # noqa: F401 - so that not every run imports it

    words = (BUGS if bug else CASES)[env]
    limit_s = LIMITS_S[env]
    expected = "invalid" if bug else "valid"
    folder = Path(tempfile.mkdtemp(prefix=f"fault-sweep-{env}-"))
    owner_pid = os.getpid()
    try:
        if chosen is None:
            counts = _undisturbed(words, expected, limit_s, folder / "undisturbed")
            print(f"{env}: undisturbed {expected}; calls {counts}", flush=True)
            left = [p for p in points_of(counts, points) if only in {None, p.kind}]
        else:
            left = list(chosen)
        left.reverse()
        running: list[Run] = []
        while left or running:
            while left and len(running) < jobs:
                number = len(left)
                running.append(Run(words, left.pop(), folder / f"point-{number}"))
            for run in list(running):
                status_now = run.ended(limit_s)
                if status_now is not None:
                    running.remove(run)
                    assert run.point is not None
                    yield run.point, run.outcome(status_now, expected, limit_s)
                    shutil.rmtree(run.folder)
            time.sleep(POLL_S)
    finally:
        if os.getpid() == owner_pid:  # a forked child gets here as well
            shutil.rmtree(folder)


def _undisturbed(
    words: tuple[str, ...], expected: str, limit_s: float, folder: Path
) -> dict[str, int]:
    """Run the case undisturbed and count calls; imports happen here, not in forked runs."""
    run = Run(words, None, folder)
    while (status := run.ended(limit_s)) is None:
        time.sleep(POLL_S)
    verdict = CODES.get(os.WEXITSTATUS(status), "error")
    if verdict != expected:
        raise SystemExit(f"the undisturbed run is {verdict}: {(folder / 'err').read_text()}")
    about = run.told()
    for name in about["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    counts: dict[str, int] = about["counts"]
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", choices=list(CASES), default="sim")
    parser.add_argument("--points", type=int, help="default: every one")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--bug", action="store_true", help="the case that is invalid")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--point", dest="chosen", type=Point.of_text, action="append",
                        help="run just this one, such as read:600")  # fmt: skip
    options = parser.parse_args()
    table: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    faults = 0
    for point, outcome in sweep(
        options.env, points=options.points, jobs=options.jobs, bug=options.bug, only=options.kind,
        chosen=options.chosen,
    ):  # fmt: skip
        table[point.kind][outcome.what] += 1
        if outcome.fault:
            faults += 1
            print(f"BROKEN {point} at {outcome.where}: {outcome.what}: {outcome.fault}", flush=True)
    print(f"\n| {'kind':10} | points | outcomes |\n|---|---|---|")
    for kind, outcomes in table.items():
        reached = sum(n for what, n in outcomes.items() if what != "not reached")
        text = ", ".join(f"{what}: {n}" for what, n in sorted(outcomes.items()))
        print(f"| {kind:10} | {reached:6} | {text} |")
    print(f"points that broke the rules: {faults}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
