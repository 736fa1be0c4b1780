"""Jobs and results of seeds, as all parts of a soak exchange them.

A result is small, since a journal may have one for each of millions of seeds: reasons are cut, and
only failing results list checkers. The fields in `MEASURES` differ from machine to machine. All
other fields depend only on the seed and the code, even if a soak was killed and resumed.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import EXIT_CRASH, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, counted
from harness.ops import Verdict
from harness.search.states import Reached
from harness.verdict.signature import shapes_text, split

CRASH: Final = "crash"
VERDICTS: Final = (
    Verdict.VALID.value,
    Verdict.PERMITTED.value,
    Verdict.INVALID.value,
    Verdict.UNKNOWN.value,
    CRASH,
)
PASSING: Final = (Verdict.VALID.value, Verdict.PERMITTED.value)
KEEP_ALL: Final = "all"
KEEP_FAILING: Final = "failing"
REASON_CHARACTERS_MAX: Final = 2000
GROUPS_MAX: Final = 500
GROUP_SEEDS_MAX: Final = 100
SEEDS_SHOWN_MAX: Final = 10
OTHER_SIGNATURES: Final = "other signatures"
_WORST_FIRST: Final = (Verdict.INVALID.value, CRASH, Verdict.UNKNOWN.value)
MEASURES: Final = ("wall_s", "cpu_s", "memory_bytes", "kept_bytes")
"""Fields of a result that may differ in a second run of the same seed. (`run.json` contains times,
so even the number of kept bytes varies.)"""


class SeedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job for a worker: one seed to run. `store` is `None` if the run is not kept.

    In a guided search, `number` is the seed in the soak, and its case may have another seed.
    """

    case: Case
    store: str | None
    name: str
    run_prefix: str  # how the name of the run's folder below store/name begins
    label: str | None = None
    keep: str = KEEP_ALL
    code: str | None = None  # the digest of the code that must run the job; `None`: any
    lake: str | None = None  # the lake for runs of remote executors; not for local workers
    reporters: tuple[str, ...] = ()  # reporters that a remote executor runs on failing runs
    artefacts: int = 0  # how many failing runs get artefacts from a remote executor
    defect: str | None = None  # MODULE:NAME of a defect to plant (`harness.soak.planting`)
    number: int | None = None  # the seed in the soak, if it differs from the case's
    observe: bool = False  # the result must contain the states that the run reached

    @property
    def seed(self) -> int:
        """The seed in the soak. In a guided search, the case may have another seed."""
        return self.case.seed if self.number is None else self.number

    @property
    def run(self) -> str:
        """The name of the run's folder. Every repetition of the seed has the same name."""
        return f"{self.run_prefix}{self.seed}"

    def of_seed(self, seed: int) -> SeedJob:
        case = msgspec.structs.replace(self.case, seed=seed)
        return msgspec.structs.replace(self, case=case, number=None)


class CheckerVerdict(msgspec.Struct, frozen=True):
    """The verdict of one checker on a run that failed."""

    checker: str
    verdict: str
    reason: str
    signature: str = ""


class SeedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one seed; `stop` is the reason to ignore the result and stop the soak."""

    seed: int
    verdict: str  # one of VERDICTS
    reason: str
    checker: str | None = None
    signature: str = ""  # of the worst finding; equal failures have equal signatures
    checkers: tuple[CheckerVerdict, ...] = ()  # one entry per checker, if the run failed
    digest: str | None = None
    ops: int = 0
    ok: int = 0
    leader_changes: int = 0
    simulated_s: float = 0.0
    run: str | None = None  # the run's folder below store/name, if the run was kept
    stop: str | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0  # the worker's peak memory until the end of the seed
    kept_bytes: int = 0
    permitted: dict[str, int] = {}  # permit: number of uses
    reached: Reached | None = None

    @property
    def failed(self) -> bool:
        """Whether the verdict is neither valid nor permitted."""
        return self.verdict not in PASSING

    @property
    def cost_s(self) -> float:
        """The CPU time of the seed, or its wall-clock time if its worker died without a result."""
        return self.cpu_s or self.wall_s

    def folder(self, store: Path, name: str) -> Path | None:
        return None if self.run is None else store / name / self.run


class FailureGroup(msgspec.Struct, kw_only=True):
    """The failing seeds with one signature.

    `first` is the result of the lowest seed, and `seeds` lists only the lowest seeds. `shapes`
    counts the seeds by the kinds of the operations that failed.
    """

    signature: str
    verdict: str
    first: SeedResult
    count: int = 0
    seeds: list[int] = []
    shapes: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def seeds_text(self) -> str:
        """The number and the list of the seeds as text: `3 seeds: 4, 9, 11`."""
        seeds = ", ".join(str(seed) for seed in self.seeds[:SEEDS_SHOWN_MAX])
        more = " ..." if self.count > SEEDS_SHOWN_MAX else ""
        return f"{counted(self.count, 'seed')}: {seeds}{more}"

    @property
    def shapes_text(self) -> str:
        """The most frequent shapes as text, each with its number of seeds."""
        return shapes_text(self.shapes)

    def take(self, result: SeedResult) -> None:
        """Add a seed. Seeds come in ascending order."""
        self.count += 1
        if shape := split(result.signature)[1]:
            self.shapes[shape] += 1
        if len(self.seeds) < GROUP_SEEDS_MAX:
            self.seeds.append(result.seed)


def failure_groups(results: Iterable[SeedResult]) -> list[FailureGroup]:
    """Group failing seeds by verdict and signature; the worst verdict and largest group come first.

    If there are more than `GROUPS_MAX` groups, all other seeds with the same verdict are one group.
    """
    groups: dict[tuple[str, str], FailureGroup] = {}
    for result in results:
        if not result.failed:
            continue
        key = (result.verdict, split(result.signature)[0] or "no signature")
        if key not in groups and len(groups) >= GROUPS_MAX:
            key = (result.verdict, OTHER_SIGNATURES)
        if key not in groups:
            groups[key] = FailureGroup(verdict=key[0], signature=key[1], first=result)
        groups[key].take(result)
    rank = {verdict: place for place, verdict in enumerate(_WORST_FIRST)}
    return sorted(
        groups.values(), key=lambda group: (rank[group.verdict], -group.count, group.first.seed)
    )


class Tally(msgspec.Struct):
    """Totals over a soak's results. Their memory does not grow with the number of seeds."""

    verdicts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    ops: int = 0
    leader_changes: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes_max: int = 0
    valid_kept: int = 0
    valid_bytes: int = 0
    failing_bytes: int = 0
    permitted: dict[str, list[int]] = msgspec.field(default_factory=dict)  # permit: [seeds, uses]

    def take(self, result: SeedResult) -> None:
        self.verdicts[result.verdict] += 1
        self.ops += result.ops
        self.leader_changes += result.leader_changes
        self.simulated_s += result.simulated_s
        self.cpu_s += result.cpu_s
        self.memory_bytes_max = max(self.memory_bytes_max, result.memory_bytes)
        for name, times in result.permitted.items():
            sums = self.permitted.setdefault(name, [0, 0])
            self.permitted[name] = [sums[0] + 1, sums[1] + times]
        if result.failed:
            self.failing_bytes += result.kept_bytes
        elif result.run is not None:
            self.valid_kept += 1
            self.valid_bytes += result.kept_bytes

    @property
    def shown(self) -> dict[str, int]:
        """The counts of verdicts to show to people, without `permitted` if its count is zero."""
        permitted = Verdict.PERMITTED.value
        return {name: n for name, n in self.verdicts.items() if n or name != permitted}

    @property
    def seeds(self) -> int:
        return sum(self.verdicts.values())

    @property
    def failed(self) -> int:
        """The number of results that are neither valid nor permitted."""
        return self.seeds - sum(self.verdicts[name] for name in PASSING)

    @property
    def exit_code(self) -> int:
        return exit_code_of(name for name, count in self.verdicts.items() if count)


def exit_code_of(verdicts: Iterable[str]) -> int:
    """Return the exit code of the worst verdict: invalid, then crash, then unknown.

    If there are no verdicts, it is the exit code of unknown.
    """
    distinct = set(verdicts)
    if Verdict.INVALID.value in distinct:
        return EXIT_INVALID
    if CRASH in distinct:
        return EXIT_CRASH
    if Verdict.UNKNOWN.value in distinct or not distinct:
        return EXIT_UNKNOWN
    return EXIT_VALID


def shortened(text: str) -> str:
    """Return `text` in a form that a journal can store: valid UTF-8, and cut if too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= REASON_CHARACTERS_MAX:
        return text
    cut = len(text) - REASON_CHARACTERS_MAX
    return f"{text[:REASON_CHARACTERS_MAX]} ... ({cut} more characters)"


def memory_bytes_max() -> int:
    """Return the peak of this process's resident memory so far.

    On Linux, this is `VmHWM`. `getrusage` would also count memory that the parent process used
    before the `exec`.
    """
    try:
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # this system is not Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
