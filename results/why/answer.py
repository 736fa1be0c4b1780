"""The answer to why a run failed, as data. It is stored in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.support.atomic_file import write_whole
from results.statistics.estimates import Interval, wilson

WHY_FILE: Final = "why.json"
SCHEMA: Final = 1
NECESSARY: Final = "necessary"
RAISES: Final = "rarer without it"
LOWERS: Final = "more frequent without it"
NO_DIFFERENCE: Final = "no difference shown"
IMPOSSIBLE: Final = "cannot be left out"
UNKNOWN: Final = "unknown"
NOT_TRIED: Final = "not tried"
VERDICTS: Final = (NECESSARY, RAISES, LOWERS, NO_DIFFERENCE, UNKNOWN, IMPOSSIBLE, NOT_TRIED)
"""The verdicts on a part of a case, in the order in which they are listed."""


class Count(msgspec.Struct, frozen=True):
    """The completed runs of one variant, and how many of them had the failure to explain.

    `failed_otherwise` counts runs that are invalid only because of another checker or rule. `runs`
    does not include runs that crashed the harness or are `unknown`.
    """

    failed: int = 0
    runs: int = 0
    failed_otherwise: int = 0
    unknown: int = 0
    crashed: int = 0

    @property
    def rate(self) -> float:
        """The share of runs that failed; 0 without runs."""
        return self.failed / self.runs if self.runs else 0.0

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of the rate; 0 to 1 without runs."""
        return wilson(self.failed, self.runs)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the case, and the failure rate without this part."""

    kind: str  # one of all-faults, faults, fault, operations, knobs, option, bug
    name: str  # unique among the causes of its kind
    words: str
    verdict: str = NOT_TRIED
    without: Count = Count()
    low: float = 0.0  # 95 % interval of the rate without the part
    high: float = 1.0
    p: float = 1.0  # Fisher's p-value of the comparison with the base, corrected by Holm
    recorded: bool = False  # whether the base is the case with recorded operations
    why_not: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The failure rate given everything that happened before `at_ns` (ns of the run)."""

    at_ns: int
    count: Count
    low: float
    high: float


class FaultSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the explained run, for drawings. `end_ns` is `None` if it was not healed."""

    id: str
    nemesis: str
    targets: tuple[str, ...]
    start_ns: int
    end_ns: int | None


class Inevitable(msgspec.Struct, frozen=True, kw_only=True):
    """The time from which on every run failed, and the events just before this time.

    `from_ns` is `None` if no such time was found. `before_ns` is the last point from which some run
    still passed. If `is_turn` is false, the failure rate at `from_ns` does not differ significantly
    from the rate at any earlier point.
    """

    from_ns: int | None = None
    before_ns: int | None = None
    between: tuple[str, ...] = ()
    is_turn: bool = True


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The causes of a failure, and the failure rate over the time of the run."""

    schema: int = SCHEMA
    run: str
    digest: str
    seed: int
    checker: str
    rule: str
    reason: str
    shown_ns: int  # time at which the failure shows: the end of the last operation in the result
    end_ns: int
    seeds: int
    reseeds: int
    base: Count = Count()
    recorded: Count | None = None  # the case with recorded operations, if it was tried
    causes: tuple[Cause, ...] = ()
    points: tuple[Point, ...] = ()
    faults: tuple[FaultSpan, ...] = ()
    inevitable: Inevitable = Inevitable()
    trials: int = 0
    cpu_s: float = 0.0
    cut: bool = False  # whether the limit of CPU time ended the search

    @property
    def kind(self) -> str:
        """The failure that is explained, as text."""
        return f"{self.checker} · {self.rule}"

    def save(self, folder: Path) -> Path:
        """Write `why.json` into the run's folder; raises `InfrastructureError`."""
        path = folder / WHY_FILE
        data = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_whole(path, data + b"\n")
        return path


def load_why(folder: Path, digest: str | None) -> Why | None:
    """Read `why.json` in a run's folder.

    Returns `None` if the file is missing or damaged, or if it does not explain the history with
    this digest.
    """
    try:
        why = msgspec.json.decode((folder / WHY_FILE).read_bytes(), type=Why)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return why if why.schema == SCHEMA and why.digest == digest else None
