"""Runs a case at one commit, once for each seed, with the code in the commit's work tree.

Each seed runs in its own process: `python -m harness run --env sim --case FILE --json`. Every
version of the harness has this command. The interpreter is the one that runs `harness bisect`. The
work tree comes first on the search path and hides installed packages.

Plug-ins are found through entry points. The entry points in the work tree's `pyproject.toml`
replace the ones of the installed distribution with the same name. Compiled modules come from the
installation, so a repository whose compiled code changes needs a set-up command that builds
`.venv`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.bisect.repository import Mark
from harness.case import Case
from harness.errors import listed
from harness.ops import Verdict
from harness.trials.trials import Kind
from harness.verdict.signature import SIGNATURE

RUN_TIMEOUT_S: Final = 900.0
SETUP_TIMEOUT_S: Final = 3600.0
BUILT_PYTHON: Final = Path(".venv/bin/python")
"""The interpreter in a work tree, if the set-up command built one."""
_VERDICT_CODES: Final = frozenset({0, 1, 2})
_REASON_CHARACTERS_MAX: Final = 300
SEEDS_NAMED_MAX: Final = 10


class SeedRun(msgspec.Struct, frozen=True):
    """The result of one seed at a commit.

    `kinds` has the kinds of failures that checkers proved. `decided` lists the checkers that
    reached a verdict. `trouble` is the reason why the seed could not run.
    """

    seed: int
    kinds: tuple[Kind, ...] = ()
    decided: tuple[str, ...] = ()
    trouble: str = ""


class AtCommit(msgspec.Struct, frozen=True):
    """The results of the seeds that ran at a commit, in the order of the seeds."""

    runs: tuple[SeedRun, ...]

    def seed_of(self, kind: Kind) -> int | None:
        return next((run.seed for run in self.runs if kind in run.kinds), None)

    def mark(self, kind: Kind) -> Mark:
        """Judge the commit for `git bisect`.

        It is bad if any seed failed in this way. It is good if no seed did, all seeds ran, and the
        checker of `kind` reached a verdict for each. Otherwise it is skipped.
        """
        if self.seed_of(kind) is not None:
            return Mark.BAD
        return Mark.SKIP if self.doubt(kind) else Mark.GOOD

    def doubt(self, kind: Kind) -> str:
        """Return why the commit cannot be called good: a seed did not run, or the checker did not
        decide. Empty if all seeds were judged.

        A checker that a commit does not have yet is such a doubt, too: a commit is not good because
        its code cannot see the failure.
        """
        if trouble := self.trouble:
            return trouble
        undecided = [str(run.seed) for run in self.runs if kind.checker not in run.decided]
        if not undecided:
            return ""
        seeds = listed(undecided, limit=SEEDS_NAMED_MAX)
        return f"the checker {kind.checker} reached no verdict with seed {seeds}"

    @property
    def trouble(self) -> str:
        """The reason why a seed could not run; empty if all ran."""
        return next((run.trouble for run in self.runs if run.trouble), "")


class Processes:
    """Running child processes. Each leads a process group, so `kill` also ends its children."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def run(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> tuple[int, str, str]:
        """Run a program to its end; returns exit code, stdout and stderr. Raises `TimeoutError`."""
        with self._lock:
            if self._over:
                return -signal.SIGKILL, "", "the search has ended"
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"took more than {timeout_s:g} s") from None
        finally:
            _kill_group(process)
            process.wait()
            with self._lock:
                self._running.discard(process)
        return process.returncode, out, err

    def kill(self) -> None:
        """End all running processes, and start no more."""
        with self._lock:
            self._over = True
            for process in self._running:
                _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class Commits:
    """Runs the case's seeds at a commit, at most `jobs` at the same time."""

    def __init__(
        self, case: Case, seeds: Sequence[int], *, jobs: int, setup: str | None, scratch: Path
    ) -> None:
        self.seeds = tuple(seeds)
        self._jobs = jobs
        self._setup = setup
        self._scratch = scratch
        self._files: dict[int, Path] = {}
        for seed in seeds:
            file = self._files[seed] = scratch / f"case-{seed}.json"
            file.write_bytes(msgspec.structs.replace(case, seed=seed).encode())

    def test(self, tree: Path, *, until: Kind | None = None) -> AtCommit:
        """Run all seeds with the code in `tree`; with `until`, stop at the first failure of this
        kind.

        If several seeds fail at the same time, the result ends with the lowest of them, so it does
        not depend on `jobs`.
        """
        if why := self._set_up(tree):
            return AtCommit((SeedRun(self.seeds[0], trouble=why),))
        words, environment = _interpreter(tree, self._scratch)
        runs: dict[int, SeedRun] = {}
        processes = Processes()
        executor = ThreadPoolExecutor(max_workers=self._jobs)
        try:
            futures = {
                seed: executor.submit(self._run, processes, seed, words, environment)
                for seed in self.seeds
            }
            for future in as_completed(futures.values()):
                run = future.result()
                runs[run.seed] = run
                if until is not None and until in run.kinds:
                    for seed in self.seeds[self.seeds.index(run.seed) + 1 :]:
                        futures[seed].cancel()
                first = self._first(runs, until)
                if first is not None:
                    return AtCommit(first)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            processes.kill()  # stop the seeds that still run
            executor.shutdown()
        return AtCommit(tuple(runs[seed] for seed in self.seeds if seed in runs))

    def _first(self, runs: Mapping[int, SeedRun], until: Kind | None) -> tuple[SeedRun, ...] | None:
        """Return the runs up to the first failing seed; `None` while an earlier seed still runs."""
        before: list[SeedRun] = []
        for seed in self.seeds:
            if seed not in runs:
                return None
            before.append(runs[seed])
            if until is not None and until in runs[seed].kinds:
                return tuple(before)
        return None

    def _set_up(self, tree: Path) -> str:
        if self._setup is None:
            return ""
        try:
            code, out, err = Processes().run(
                ["/bin/sh", "-c", self._setup],
                folder=tree,
                environment=os.environ,
                timeout_s=SETUP_TIMEOUT_S,
            )
        except TimeoutError as error:
            return f"the set-up {error}"
        return "" if code == 0 else f"the set-up failed with {code}: {_last_line(err or out)}"

    def _run(
        self,
        processes: Processes,
        seed: int,
        words: Sequence[str],
        environment: Mapping[str, str],
    ) -> SeedRun:
        store = self._scratch / "store"
        arguments = ["run", "--env", "sim", "--case", str(self._files[seed]), "--json", "--quiet"]
        arguments += ["--reporters", "none", "--store", str(store)]
        try:
            code, out, err = processes.run(
                [*words, *arguments],
                folder=self._scratch,
                environment=environment,
                timeout_s=RUN_TIMEOUT_S,
            )
        except TimeoutError as error:
            return SeedRun(seed, trouble=f"seed {seed} {error}")
        except OSError as error:
            return SeedRun(seed, trouble=f"{words[0]} cannot be started: {error.strerror}")
        with contextlib.suppress(ValueError, LookupError, TypeError, msgspec.DecodeError):
            if code in _VERDICT_CODES:
                report = msgspec.json.decode(out)
                return SeedRun(seed, _kinds(report), _decided(report))
        return SeedRun(seed, trouble=f"seed {seed} ended with {code}: {_last_line(err)}")


def _decided(report: Any) -> tuple[str, ...]:
    checkers = report["checkers"]
    return tuple(each["checker"] for each in checkers if each["verdict"] != Verdict.UNKNOWN.value)


def _kinds(report: Any) -> tuple[Kind, ...]:
    kinds = (
        Kind.of(result["checker"], str(result.get("details", {}).get(SIGNATURE, "")))
        for result in report["checkers"]
        if result["verdict"] == Verdict.INVALID.value
    )
    return tuple(dict.fromkeys(kinds))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_REASON_CHARACTERS_MAX] if lines else "it printed nothing"


def _interpreter(tree: Path, scratch: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts the harness at a commit, and its environment variables."""
    built = tree / BUILT_PYTHON
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    if built.exists():
        environment.pop("PYTHONPATH", None)
        return [str(built), "-P", "-m", "harness"], environment
    places = [_metadata_of(tree, scratch), tree / "src", tree]
    inherited = os.environ.get("PYTHONPATH")
    search = [str(place) for place in places if place is not None and place.is_dir()]
    environment["PYTHONPATH"] = os.pathsep.join([*search, *([inherited] if inherited else [])])
    return [sys.executable, "-P", "-m", "harness"], environment


def _metadata_of(tree: Path, scratch: Path) -> Path | None:
    """Write the entry points in the commit's `pyproject.toml` as the metadata of an installed
    package.

    Returns the folder for the search path, or `None` if the file declares no entry points.
    """
    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        name, groups = str(project["name"]), dict(project["entry-points"])
        lines = [
            line
            for group, points in groups.items()
            for line in [f"[{group}]", *(f"{key} = {value}" for key, value in points.items()), ""]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    version = project.get("version", "0")
    folder = scratch / f"metadata-{tree.name}"
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (about / "METADATA").write_text(text, encoding="utf-8")
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder
