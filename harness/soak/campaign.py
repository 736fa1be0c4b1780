"""Manages one soak from its first seed to its last, even if it is killed and resumed many times.

`Campaign` has the finished seeds (the journal), the pending seeds, and the totals. A seed is
finished when the journal has its result. If its run is to be kept, the store or the sink (a lake
that collects runs) must also have the run. The next soak retries crashed seeds, which have no
verdict. The seeds may run in local worker processes, on Spark or, in a real environment, in this
process.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import InfrastructureError, UsageError, counted
from harness.ops import Verdict
from harness.plugins import Environment, SunkRuns
from harness.registry import load_plugin
from harness.search.guide import (
    GUIDED,
    SWARM,
    UNIFORM,
    Guide,
    Proposal,
    Search,
    generations,
)
from harness.soak.identity import SoakId, soak_id
from harness.soak.journal import Journal, Lock
from harness.soak.result import CRASH, KEEP_ALL, KEEP_FAILING, SeedJob, SeedResult, Tally
from harness.store.folder import STAGED_SUFFIX, check_name, check_place

SOAK_FOLDER: Final = ".soak"
JOURNALS_A_CASE_MAX: Final = 5
LABEL_CHARACTERS_MAX: Final = 60
LATEST: Final = "latest"
CORPUS_SUFFIX: Final = ".corpus"
SIM: Final = "sim"
OpenSink = Callable[[str, str], SunkRuns]


class SoakSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a soak. `case` is planned, but its seed and faults are not used."""

    case: Case
    environment: str
    label: str | None
    first: int
    last: int
    store: Path
    name: str
    keep: str = KEEP_ALL
    stop_after: int = 0
    search: Search = SWARM

    def __post_init__(self) -> None:
        check_name(self.name, "--name")
        if self.label is not None:
            check_name(self.label, "--label")
            if len(self.label) > LABEL_CHARACTERS_MAX:
                raise UsageError(
                    f"--label is {self.label!r}; use at most {LABEL_CHARACTERS_MAX} characters"
                )
        if self.keep not in {KEEP_ALL, KEEP_FAILING}:
            raise UsageError(f"--keep is {self.keep!r}; it must be {KEEP_ALL} or {KEEP_FAILING}")

    @property
    def seeds(self) -> int:
        return self.last - self.first + 1

    @property
    def folder(self) -> Path:
        return self.store / self.name

    @property
    def searched(self) -> tuple[str, ...]:
        """The values that decide, together with the case, which cases run; empty for a swarm."""
        if self.search == SWARM:
            return ()
        return (self.search,) if self.search == UNIFORM else (self.search, str(self.first))


class _Kept(msgspec.Struct, frozen=True):
    """The fields of `run.json` that show whether a stored run belongs to a seed's result."""

    digest: str
    verdict: str  # other code may have judged the same history differently


class Campaign:
    """An open soak. Until it is closed, it holds a lock against a second soak of the same case.

    Raises `UsageError` if the same soak is already running, or if the store is not a folder. Raises
    `InfrastructureError` for disk errors.
    """

    def __init__(self, spec: SoakSpec, *, fresh: bool, sink: OpenSink | None = None) -> None:
        """Take the lock and read the journal; `fresh` discards the journal.

        `sink` opens a sink for the soak's name and the prefix of its runs. Runs then move from the
        store to this sink.
        """
        check_place(spec.store, spec.name)
        self.spec = spec
        self.id: SoakId = soak_id(
            spec.case, environment=spec.environment, label=spec.label, search=spec.searched
        )
        environment: Environment = load_plugin("environments", spec.environment)
        self.guide = Guide(spec.case, environment, spec.search)
        self._proposals: dict[int, Proposal] = {}
        self.notes: list[str] = []
        self.tally = Tally()
        self._looked = True  # the sink's list of its runs is current (`SunkRuns.look`)
        self.stopped: str | None = None
        """the reason why the soak must stop although seeds are left"""
        self._folder = spec.folder / SOAK_FOLDER
        self._lock = Lock(self._folder / f"{self.id.case}.lock")
        try:
            prefix = self._prefix if spec.environment == SIM else ""
            self.sink = None if sink is None else sink(spec.name, prefix)
            path = self._folder / f"{self.id}.log"
            self._look_at_older(path)
            self._journal = Journal(path, str(self.id), spec.first, spec.last, fresh=fresh)
            if self._journal.dropped:
                self.notes.append(
                    f"the journal {path} held {self._journal.dropped} torn or damaged lines: "
                    "their seeds run again"
                )
            self._sweep()
            self._go_on(fresh=fresh)
        except BaseException:
            self._lock.release()
            raise

    def _look_at_older(self, path: Path) -> None:
        """Add a note if the code has changed. Remove all but a few journals of older code."""
        older = [other for other in self._folder.glob(f"{self.id.case}-*.log") if other != path]
        older.sort(key=lambda other: other.stat().st_mtime, reverse=True)
        if older and not path.exists():
            when = dt.datetime.fromtimestamp(older[0].stat().st_mtime, tz=dt.UTC)
            runs = (
                "replaces the runs of the same seeds; another --label keeps both"
                if self.spec.environment == SIM and self.sink is None
                else "keeps older runs next to the new ones; another --label separates them"
            )
            self.notes.append(
                f"the code changed since this soak last ran ({when:%Y-%m-%d %H:%M} UTC): it starts "
                f"over and {runs}"
            )
        for other in older[JOURNALS_A_CASE_MAX - 1 :]:
            other.unlink(missing_ok=True)
            shutil.rmtree(other.with_suffix(CORPUS_SUFFIX), ignore_errors=True)

    def _sweep(self) -> None:
        """Remove incomplete folders that killed workers left."""
        for part in self.spec.folder.glob(f".{self._prefix}*{STAGED_SUFFIX}"):
            shutil.rmtree(part, ignore_errors=True)

    def _go_on(self, *, fresh: bool) -> None:
        """Count the seeds that journal or sink show as finished; forget the ones to run again."""
        again = gone = 0
        for result in self._journal.results():
            if result.verdict == CRASH and not self._guided:
                again += 1
            elif self._keeps(result) and not (self._sinks(result) or self._is_kept(result)):
                gone += 1
            else:
                self.tally.take(result)
                continue
            self._journal.forget(result.seed)
        # A guided search takes no results from a lake, which lacks the states that runs reached.
        if self.sink is not None and not (fresh or self._guided):
            self._take_over(self.sink)
        if self.tally.seeds:
            wanted = counted(self.spec.seeds, "seed")
            self.notes.append(f"already done: {self.tally.seeds} of {wanted}")
        if again:
            self.notes.append(f"running {counted(again, 'seed')} again that crashed the last time")
        if gone:
            self.notes.append(f"running {counted(gone, 'seed')} again whose runs the store lacks")
        self.done_before = self.tally.seeds

    @property
    def _guided(self) -> bool:
        """Whether later cases depend on earlier results. If so, earlier results must not change."""
        return self.spec.search == GUIDED

    def _keeps(self, result: SeedResult) -> bool:
        """Whether the run of a result must be in the store or the sink."""
        wanted = self.spec.keep == KEEP_ALL or result.failed
        return wanted and result.verdict != CRASH

    def _take_over(self, sink: SunkRuns) -> None:
        """Record results that only the sink has, such as the results of another machine."""
        for data in sink.results(self.id.code):
            result = msgspec.json.decode(data, type=SeedResult)
            settled = result.seed in self._journal or result.run != self.run_name(result.seed)
            if self.spec.first <= result.seed <= self.spec.last and not settled:
                self._journal.append(result)
                self.tally.take(result)

    def _sinks(self, result: SeedResult) -> bool:
        """Whether the sink has the run of `result`.

        If a killed soak left the run in the store, it moves to the sink now.
        """
        folder = result.folder(self.spec.store, self.spec.name)
        if self.sink is None or folder is None:
            return False
        if self.sink.holds(folder.name, result.digest or "", result.verdict):
            if self._record_in(folder) in {None, _Kept(result.digest or "", result.verdict)}:
                shutil.rmtree(folder, ignore_errors=True)  # the sink already has the run
            return True
        if self._is_kept(result):
            self.sink.add(folder)
            return True
        return False

    def _is_kept(self, result: SeedResult) -> bool:
        """Whether the store has the run of `result`, with the same digest and verdict."""
        folder = result.folder(self.spec.store, self.spec.name)
        if folder is None or not (folder / "history.parquet").is_file():
            return False
        return self._record_in(folder) == _Kept(result.digest or "", result.verdict)

    @staticmethod
    def _record_in(folder: Path) -> _Kept | None:
        try:
            return msgspec.json.decode((folder / "run.json").read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    @property
    def _prefix(self) -> str:
        return f"{self.spec.label or 'soak'}-{self.id.case[:8]}-seed-"

    def run_name(self, seed: int) -> str:
        """Return the folder name of a seed's simulated run. A seed always gets the same name."""
        return f"{self._prefix}{seed}"

    def pending(self) -> Iterator[int]:
        """Yield the seeds that must run, in order."""
        return self._pending(range(self.spec.first, self.spec.last + 1))

    def _pending(self, seeds: Iterable[int]) -> Iterator[int]:
        return (seed for seed in seeds if seed not in self._journal)

    def waves(self) -> Iterator[Iterator[SeedJob]]:
        """Yield the jobs of pending seeds in groups. In a guided search, a group is a generation.

        All jobs of a group must end before the next group is requested.
        """
        if not self._guided:
            yield map(self.job, self.pending())
            return
        for seeds in generations(self.spec.first, self.spec.last):
            self._proposals = self.guide.generation(seeds)
            yield map(self.job, self._pending(seeds))
            self._learn()

    def _learn(self) -> None:
        """Pass the results of a complete generation to the guide, and store the guide's corpus."""
        for seed, proposal in self._proposals.items():
            result = self._journal.result(seed)
            if result is not None and result.reached is not None:
                self.guide.learn(seed, proposal, result.reached, failed=result.failed)
        self.guide.corpus.write(self.corpus_folder)

    @property
    def corpus_folder(self) -> Path:
        """The folder of a guided search's corpus."""
        return self._folder / f"{self.id}{CORPUS_SUFFIX}"

    @property
    def states(self) -> int:
        """The number of states that all runs reached, even in an incomplete generation."""
        if not self._guided:
            return 0
        reached = (result.reached for result in self.results() if result.reached is not None)
        return len({state for each in reached for state in each.states})

    @property
    def search_record(self) -> dict[str, str | int | None]:
        """The search's name, its number of reached states, and its corpus, as plain JSON."""
        return {
            "name": self.spec.search,
            "states": self.states,
            "cases": len(self.guide.corpus.entries),
            "corpus": str(self.corpus_folder) if self._guided else None,
        }

    def job(self, seed: int) -> SeedJob:
        spec = self.spec
        case = self._proposals[seed].case if self._guided else self.guide.case_of(seed)
        return SeedJob(
            case=case,
            number=seed,
            observe=self._guided,
            store=str(spec.store.absolute()),
            name=spec.name,
            run_prefix=self._prefix,
            label=spec.label,
            keep=spec.keep,
            code=self.id.code,
            lake=None if self.sink is None else self.sink.uri,
        )

    @property
    def enough(self) -> bool:
        """Whether enough seeds are invalid for the soak to stop early."""
        return 0 < self.spec.stop_after <= self.tally.verdicts[Verdict.INVALID.value]

    def take(self, result: SeedResult, *, sunk: bool = False) -> bool:
        """Record one result; returns whether to continue. `sunk` means that the sink has the run.

        If an executor runs a seed twice, the first result counts.
        """
        proven = result.verdict == Verdict.INVALID.value  # counts even if the run was not kept
        if result.stop is not None:
            self.stopped = result.stop
            if proven:
                self.tally.take(result)
            return False
        if not self.spec.first <= result.seed <= self.spec.last:
            raise InfrastructureError(
                f"an executor returned a result of seed {result.seed}, which is not in the soak"
            )
        if result.seed not in self._journal:
            try:
                lost = result.run is None and (proven or result.verdict == CRASH)
                if lost:
                    self._keep_case(result.seed)
                self._journal.append(result)
                if not lost:
                    # remove the case file, because reports would count it as a crash
                    with contextlib.suppress(OSError):
                        self._case_beside(result.seed).unlink(missing_ok=True)
            except InfrastructureError:
                if proven:
                    self.tally.take(result)
                raise
            if result.run is None:  # if the store has a run of this seed, older code made it
                shutil.rmtree(self.spec.folder / self.run_name(result.seed), ignore_errors=True)
            self.tally.take(result)
            folder = result.folder(self.spec.store, self.spec.name)
            self._looked &= not sunk
            if not (self.sink is None or sunk or folder is None or result.verdict == CRASH):
                self.sink.add(folder)
        return not self.enough

    def flush(self) -> None:
        """Make the sink store all added runs; raises `InfrastructureError` if the sink fails."""
        if self.sink is None:
            return
        self.sink.flush()
        if not self._looked:
            self.sink.look()
            self._looked = True
        latest = self.spec.folder / LATEST
        if latest.is_symlink() and not latest.exists():
            latest.unlink(missing_ok=True)

    def place_of(self, result: SeedResult) -> str:
        """Return the folder with the run's files; "" if only the sink has the run."""
        folder = result.folder(self.spec.store, self.spec.name)
        if folder is None or self.sink is None or folder.is_dir():
            return "" if folder is None else str(folder)
        return self.sink.place_of(folder.name) or ""

    def case_file(self, result: SeedResult) -> Path:
        """Return the case file of a result; after a crash, it is next to the journal."""
        folder = result.folder(self.spec.store, self.spec.name)
        if folder is not None:
            return folder / "case.json"
        return self._case_beside(result.seed)

    def _case_beside(self, seed: int) -> Path:
        return self._folder / f"{self.run_name(seed)}.case.json"

    def _keep_case(self, seed: int) -> None:
        path = self._case_beside(seed)
        try:
            path.write_bytes(self.job(seed).case.encode())
        except OSError as error:
            raise InfrastructureError(f"cannot write {path}: {error.strerror}") from error

    def results(self) -> Iterator[SeedResult]:
        return self._journal.results()

    def close(self) -> None:
        """Release the journal and the lock; safe to call twice."""
        self._journal.close()
        self._lock.release()
