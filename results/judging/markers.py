"""Marks: of a result that may come out otherwise another time, and of a stage that was begun.

A result is `LIMITED` where a budget left some verdict unknown, and the next level is planned;
`BROKEN` where a checker killed its worker or raised. Beyond the last level neither is tried again
by itself, since that may cost as much as the first time: `--again` does it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

LIMITED: Final = ".limited"
BROKEN: Final = ".broken"
STARTED: Final = "started"
"""The folder of markers."""


class Marker:
    """Counts the attempts of one stage of a unit, within one round of an executor.

    A block counts as one attempt until it ends, well or not. A worker that is killed leaves its
    marker behind. A stage that killed two is not begun again.
    """

    ATTEMPTS_MAX: Final = 2

    def __init__(self, folder: Path, round_: str, stage: str) -> None:
        """`stage` is a name that a file can have."""
        self._path = folder / STARTED / f"{round_}-{stage}"

    @property
    def spent(self) -> bool:
        """Whether it was begun as often as it may be, and never ended."""
        try:
            return self._path.stat().st_size >= self.ATTEMPTS_MAX
        except FileNotFoundError:
            return False

    @property
    def begun(self) -> bool:
        """Whether it was begun before, and did not end."""
        return self._path.exists()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(b"x")
        return self

    def __exit__(self, *exc: object) -> None:
        self._path.unlink(missing_ok=True)
