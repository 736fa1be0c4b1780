"""The runs of one test: their folders, seeds and replay commands.

Runs are kept in an ordinary store, `STORE/<module>.<test>[-<worker>]/<run>/`, so that `harness
check`, `report` and `serve` can read them. With pytest-xdist every worker has its own folders. The
runs of a passed test are removed after the test, unless artefacts were requested.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, History, Verdict
from harness.pytesting.markers import ENV_DEFAULT, settings_of_markers, with_system
from harness.run.keep import finish_run
from harness.store import RunFolder, RunRecord, new_run_id
from harness.verdict.judge import Judgement
from harness.verdict.signature import failure_of

if TYPE_CHECKING:
    from harness.pytesting.live import LiveCluster

NOT_JUDGED: Final = "not judged"
NAME_CHARACTERS_MAX: Final = 80
_numbers = itertools.count(1)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one test, as plain data."""

    test: str  # the test's id, as pytest accepts it in its start folder
    name: str
    seed: int
    seed_given: bool
    env: str | None
    profile: str | None
    store: str
    keep_all: bool
    worker: str | None  # of pytest-xdist
    start_folder: str
    root: str  # paths in tests are relative to this folder


class JudgedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its verdict, as `run_case` and `history.check` return it."""

    verdict: Verdict
    results: tuple[CheckResult, ...]
    history: History
    case: Case
    environment: str
    folder: Path
    replay: str


class LastRun(NamedTuple):
    """The run of this test that ended last."""

    case: Case
    history: History
    folder: RunFolder
    record: RunRecord

    def with_verdict(self, judgement: Judgement, replay: str) -> JudgedRun:
        return JudgedRun(
            verdict=judgement.verdict,
            results=judgement.results,
            history=self.history,
            case=self.case,
            environment=self.record.environment,
            folder=self.folder.path,
            replay=replay,
        )


class Fixture:
    """The base of fixtures. All fixtures of a test share its runs, and act only when called."""

    def __init__(self, runs: RunsOfTest) -> None:
        self._runs = runs


class RunsOfTest:
    """The shared state of a test's fixtures."""

    def __init__(
        self,
        settings: Settings,
        markers: Sequence[tuple[tuple[object, ...], dict[str, object]]],
        properties: list[tuple[str, object]],
    ) -> None:
        """Create the state of one test. `properties` collects the entries for pytest's reports."""
        self.settings = settings
        self._properties = properties
        self._markers = markers
        self._seeds = itertools.count()
        self.interrupted = False
        self.folders: list[RunFolder] = []
        self.live: LiveCluster | None = None
        self.last: LastRun | None = None
        self._results: dict[str, CheckResult] = {}  # of the last run, by checker

    def merged_settings(self, given: Mapping[str, object]) -> tuple[str, dict[str, object]]:
        """Merge markers, pytest's options and `given`; returns the environment and the settings."""
        marked = settings_of_markers(self._markers)
        options = {"env": self.settings.env, "profile": self.settings.profile}
        wanted = {**marked, **{name: value for name, value in options.items() if value}, **given}
        wanted = with_system(wanted, Path(self.settings.root))
        if "seed" not in given:
            begin = marked.get("seed")
            if self.settings.seed_given or not isinstance(begin, int):
                begin = self.settings.seed
            wanted["seed"] = begin + next(self._seeds)
        env = wanted.pop("env", None) or ENV_DEFAULT
        if not isinstance(env, str):
            raise UsageError(f"env is {env!r}; give the name of an environment")
        return env, wanted

    def new_folder(self, case: Case) -> RunFolder:
        """Create the folder for a run of `case`. Until this run is over, there is no last run."""
        self.last = None
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.settings.name).strip("-._")
        name = name[:NAME_CHARACTERS_MAX].rstrip("-._") or "test"
        if self.settings.worker is not None:
            name = f"{name}-{self.settings.worker}"
        run_id = f"{new_run_id(case.seed)}-{next(_numbers)}"
        folder = RunFolder(Path(self.settings.store), name, run_id)
        self.folders.append(folder)
        self._properties += [
            ("harness_run", self.shown(folder.path)),
            ("harness_seed", case.seed),
            ("harness_verdict", NOT_JUDGED),
        ]
        return folder

    def shown(self, path: Path) -> str:
        """Return `path` in its shortest form, relative to the folder where pytest was started."""
        start = self.settings.start_folder
        return str(path.relative_to(start) if path.is_relative_to(start) else path)

    def take(self, run: LastRun, results: Sequence[CheckResult] = ()) -> None:
        self.interrupted = self.interrupted or run.record.interrupted
        self.last = run
        self._results = {}
        if results:
            self._add(results)

    def judged(self, results: Sequence[CheckResult], replay: str) -> None:
        """Record more results for the last run. Its verdict is the worst of all results."""
        assert self.last is not None
        judgement = self._add(results)
        record = msgspec.structs.replace(
            self.last.record, verdict=judgement.verdict, failure=failure_of(judgement.results)
        )
        finish_run(self.last.folder, record, judgement, replay=replay)

    def _add(self, results: Sequence[CheckResult]) -> Judgement:
        self._results |= {result.checker: result for result in results}
        judgement = Judgement(tuple(self._results.values()))
        last = max(i for i, (name, _) in enumerate(self._properties) if name == "harness_verdict")
        self._properties[last] = ("harness_verdict", judgement.verdict.value)
        return judgement

    def test_again(self, environment: str) -> str:
        words = ["pytest", self.settings.test]
        marked = settings_of_markers(self._markers).get("seed")
        if self.settings.seed_given or not isinstance(marked, int):
            words.append(f"--harness-seed={self.settings.seed}")
        if self.settings.env:
            words.append(f"--harness-env={environment}")
        if self.settings.profile:
            words.append(f"--harness-profile={self.settings.profile}")
        return shlex.join(words)

    def tidy(self, *, failed: bool) -> None:
        """Remove the runs of a passed test, unless one was interrupted or all must be kept."""
        if failed or self.interrupted or self.settings.keep_all:
            return
        for folder in self.folders:
            shutil.rmtree(folder.path, ignore_errors=True)
            series = folder.path.parent
            with contextlib.suppress(OSError):
                if str((series / "latest").readlink()) == folder.path.name:
                    (series / "latest").unlink()
                series.rmdir()
                series.parent.rmdir()  # removes the store if it is empty
