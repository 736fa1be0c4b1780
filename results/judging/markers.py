"""Marks on results that a retry may change, and marker files for stages that may kill a worker.

A result is `LIMITED` if it is unknown because a check reached its budget. The report then retries
it with the next level of budget. A result is `BROKEN` if a checker raised, or killed its worker. A
result that is `BROKEN`, or `LIMITED` at the last level, is only retried with the option `--again`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

LIMITED: Final = ".limited"
BROKEN: Final = ".broken"
STARTED: Final = "started"
"""The name of the folder of markers."""


class Marker:
    """A file that counts the unfinished attempts of one stage, in one round of an executor.

    Each `with` block is one attempt. The end of the block removes the file, with or without an
    exception. A worker that is killed leaves the file behind. A stage that has killed two workers
    is not attempted again.
    """

    ATTEMPTS_MAX: Final = 2

    def __init__(self, folder: Path, round_: str, stage: str) -> None:
        """Create the marker of `stage`, which must be a valid file name."""
        self._path = folder / STARTED / f"{round_}-{stage}"

    @property
    def spent(self) -> bool:
        """Whether the stage must not be tried again, because every allowed attempt was killed."""
        try:
            return self._path.stat().st_size >= self.ATTEMPTS_MAX
        except FileNotFoundError:
            return False

    @property
    def begun(self) -> bool:
        """Whether an earlier attempt began but never ended, because it killed its worker."""
        return self._path.exists()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(b"x")
        return self

    def __exit__(self, *exc: object) -> None:
        self._path.unlink(missing_ok=True)
