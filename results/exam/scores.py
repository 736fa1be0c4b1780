"""Turns the results of seeds into scores, and defines an exam's scoreboard (`exam.json`).

Seeds count only up to the first seed without a result, and with `--first` only up to the first
detection. So a score does not depend on the order in which results arrive.
"""

from __future__ import annotations

import datetime as dt
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.errors import UsageError
from harness.ops import Verdict
from harness.soak.result import CRASH, SeedResult
from harness.support.atomic_file import write_whole
from harness.verdict.signature import SEPARATOR, split
from results.exam.rows import CLEAN, DEFECT, SWITCH, Row
from results.statistics.estimates import wilson
from results.statistics.exact import Outcome

SCHEMA: Final = 1
NEAR: Final = 30
"""Most switches should be found within this number of seeds."""


class Shrunk(msgspec.Struct, frozen=True):
    """The size of a shrunk case."""

    faults: int
    operations: int
    cpu_s: float


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one row. `seeds` is the number of seeds that count. CPU times are in seconds.

    `low` and `high` are the 95 % interval of the rate. With `stopped` (the row stopped at its first
    detection), it is the exact interval for a geometric number of trials; otherwise it is Wilson's
    interval.
    """

    kind: str
    target: str
    name: str
    title: str
    options: str
    seeds: int
    hits: int
    stopped: bool
    low: float
    high: float
    cpu_s: float
    verdicts: dict[str, int]
    first_seed: int | None = None
    to_first: int | None = None
    cpu_s_to_first: float | None = None
    checker: str = ""  # checker, rule and fault of most detections
    rule: str = ""
    fault: str = ""
    expected: str = ""
    defect: str | None = None
    reason: str = ""
    shrunk: Shrunk | None = None

    @property
    def key(self) -> str:
        return f"{self.kind} {self.target} {self.name}"

    @property
    def found(self) -> bool:
        return self.hits > 0

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.hits, self.seeds, self.stopped)

    @property
    def command(self) -> str:
        """The command that repeats the first detection, or tries the row again."""
        if self.defect is not None:
            module, _, name = self.defect.partition(":")
            seed = "" if self.first_seed is None else f" --seeds {self.first_seed}"
            return f"harness exam --defects {module} --part defects --only {name}{seed}"
        if self.first_seed is None:
            return ""
        return f"harness run --env sim {self.options} --seed {self.first_seed}"


class Tally(msgspec.Struct, frozen=True):
    """Counts over the rows of one kind. `near` counts rows detected within `NEAR` seeds."""

    rows: int
    detected: int
    near: int
    seeds: int
    hits: int
    decided: int  # number of seeds that neither crashed nor ended `unknown`


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an exam. `cut` is empty, or says why the exam is incomplete."""

    schema: int = SCHEMA
    commit: str
    made: str  # UTC, ISO 8601
    version: str = __version__
    python: str = platform.python_version()
    cpu_s: float
    runs: int
    cut: str
    scores: tuple[Score, ...]
    refused: dict[str, str] = {}

    def of(self, kind: str) -> list[Score]:
        """Return the scores of one kind's rows that were tried."""
        return [score for score in self.scores if score.kind == kind and score.seeds]

    def untried(self, kind: str) -> list[Score]:
        """Return the scores of one kind's untried rows, whose defects no soak can find."""
        return [score for score in self.scores if score.kind == kind and not score.seeds]

    def tally(self, kind: str) -> Tally:
        scores = self.of(kind)
        return Tally(
            rows=len(scores),
            detected=sum(score.found for score in scores),
            near=sum(score.to_first is not None and score.to_first <= NEAR for score in scores),
            seeds=sum(score.seeds for score in scores),
            hits=sum(score.hits for score in scores),
            decided=sum(
                count
                for score in scores
                for verdict, count in score.verdicts.items()
                if verdict not in {CRASH, Verdict.UNKNOWN.value}
            ),
        )

    @property
    def missed(self) -> list[Score]:
        """The scores of defects that no seed found, including defects that were not tried."""
        rows = [*self.of(SWITCH), *self.untried(SWITCH), *self.of(DEFECT), *self.untried(DEFECT)]
        return [score for score in rows if not score.found]

    @property
    def outdated(self) -> list[Score]:
        """The scores of defects that were found, although their row says why no seed would."""
        return [
            score for score in [*self.of(SWITCH), *self.of(DEFECT)] if score.found and score.reason
        ]

    @property
    def blamed(self) -> list[Score]:
        """The scores of clean profiles in which a violation was reported: false alarms."""
        return [score for score in self.of(CLEAN) if score.found]

    @property
    def crashes(self) -> int:
        """The number of seeds of clean profiles on which the harness crashed."""
        return sum(score.verdicts.get(CRASH, 0) for score in self.of(CLEAN))


def score(row: Row, results: Mapping[int, SeedResult]) -> Score:
    """Return the score of a row."""
    counted = list(_counted(row, results))
    hits = [result for result in counted if row.is_hit(result)]
    to_first = counted.index(hits[0]) + 1 if hits else None
    stopped = row.first
    interval = (
        Outcome(1, len(counted), stopped=True).interval()
        if stopped and hits
        else wilson(len(hits), len(counted))
    )
    checker, rule, fault = _usual(row, hits)
    return Score(
        kind=row.kind,
        target=row.target,
        name=row.name,
        title=row.title,
        options=row.options,
        seeds=len(counted),
        hits=len(hits),
        stopped=stopped,
        low=interval.low,
        high=interval.high,
        cpu_s=sum(result.cpu_s for result in counted),
        verdicts=dict(sorted(Counter(result.verdict for result in counted).items())),
        first_seed=hits[0].seed if hits else None,
        to_first=to_first,
        cpu_s_to_first=sum(result.cpu_s for result in counted[:to_first]) if hits else None,
        checker=checker,
        rule=rule,
        fault=fault,
        expected=row.expected,
        defect=row.defect,
        reason=row.reason,
    )


def scoreboard(
    rows: Sequence[tuple[Row, Mapping[int, SeedResult]]],
    *,
    commit: str,
    cut: str,
    refused: Mapping[str, str],
) -> Scoreboard:
    """Return the scoreboard over all rows and their results."""
    scores = tuple(score(row, results) for row, results in rows)
    return Scoreboard(
        commit=commit,
        made=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
        cpu_s=sum(score.cpu_s for score in scores),
        runs=sum(score.seeds for score in scores),
        cut=cut,
        scores=scores,
        refused=dict(refused),
    )


def read_scoreboard(path: Path, flag: str) -> Scoreboard:
    """Read an `exam.json`. Raises a `UsageError` that mentions the option `flag`."""
    try:
        board = msgspec.json.decode(path.read_bytes(), type=Scoreboard)
    except OSError as error:
        raise UsageError(f"{flag} {str(path)!r} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{flag} {str(path)!r} is not the scoreboard of an exam ({error}); give a file "
            "exam.json that `harness exam` wrote"
        ) from error
    if board.schema != SCHEMA:
        raise UsageError(
            f"{flag} {str(path)!r} has schema {board.schema}; this version reads only {SCHEMA}: "
            "run the exam again to renew the file"
        )
    return board


def write_json(board: Scoreboard, path: Path) -> None:
    """Write a scoreboard to `path`; raises `InfrastructureError`."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(board), indent=1) + b"\n")


def _counted(row: Row, results: Mapping[int, SeedResult]) -> Iterator[SeedResult]:
    for seed in row.seeds:
        if (result := results.get(seed)) is None:
            return
        yield result
        if row.first and row.is_hit(result):
            return


def _usual(row: Row, hits: Sequence[SeedResult]) -> tuple[str, str, str]:
    signatures: Counter[str] = Counter()
    for result in hits:
        proven = [each for each in result.checkers if each.verdict == Verdict.INVALID.value]
        worst = next((each for each in proven if row.accepted in {None, each.checker}), None)
        if worst is not None:
            signatures[split(worst.signature)[0] or worst.checker] += 1
    if not signatures:
        return "", "", ""
    parts = [*signatures.most_common(1)[0][0].split(SEPARATOR), "", ""]
    return parts[0], parts[1], parts[2]


KINDS: Final[Mapping[str, str]] = {
    SWITCH: "bug switches",
    DEFECT: "planted defects",
    CLEAN: "clean profiles",
}
