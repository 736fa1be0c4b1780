"""The corpus of a guided search: cases that reached states which no earlier case had reached.

A state is a small tuple of facts about one moment of a run (`harness.search.states`). A new case
enters the corpus if it reached such a state. A case leaves the corpus once other cases have reached
all of its states. The corpus has at most `ENTRIES_MAX` cases; when it is full, it drops the case
with the fewest states that no other case has reached. A case that fails does not enter, since most
variations of it would fail in the same way; its states count as reached.

The corpus depends only on the results, taken in the order of their seeds. So a resumed soak
rebuilds it from the journal. The files in its folder are for people and for other soaks.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import InfrastructureError
from harness.search.states import Reached

ENTRIES_MAX: Final = 128
_CASE_SUFFIX: Final = ".case.json"
_STATES_SUFFIX: Final = ".states.json"


class Origin(msgspec.Struct, frozen=True):
    """The origin of a case: either the case of seed `parent` with `changes`, or a new one."""

    parent: int | None = None
    changes: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A case in the corpus.

    `number` is its seed in the soak, and `reached` has the states that its run reached.
    """

    number: int
    case: Case
    origin: Origin
    reached: Reached
    states: tuple[int, ...]


class _Stored(msgspec.Struct, frozen=True):
    """The second file of an entry: everything except the case, which is in the first."""

    seed: int
    origin: Origin
    states: int
    reached: Reached


class Corpus:
    """The entries of a search, and the number of runs that reached each state."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._runs: Counter[int] = Counter()
        self._weights: list[float] = []

    def take(
        self, number: int, case: Case, origin: Origin, reached: Reached, *, failed: bool
    ) -> bool:
        """Count the states that a case reached; returns whether the case entered the corpus."""
        states = reached.states
        new = any(state not in self._runs for state in states)
        self._runs.update(states)
        self._weights = []
        if not new or failed:
            return False
        self.entries[number] = Entry(
            number=number, case=case, origin=origin, reached=reached, states=states
        )
        self._minimise()
        return True

    def _minimise(self) -> None:
        """Drop entries whose states other entries all have, oldest first. Then apply the limit."""
        holders: Counter[int] = Counter()
        for entry in self.entries.values():
            holders.update(entry.states)
        unique = {
            number: sum(holders[state] == 1 for state in entry.states)
            for number, entry in self.entries.items()
        }
        for number in list(self.entries):
            states = self.entries[number].states
            if all(holders[state] > 1 for state in states):
                holders.subtract(states)
                del self.entries[number]
        while len(self.entries) > ENTRIES_MAX:
            del self.entries[min(self.entries, key=lambda number: (unique[number], number))]

    def choose(self, rng: random.Random) -> Entry:
        """Draw an entry at random. Entries that reached rarer states are drawn more often."""
        entries = list(self.entries.values())
        if not self._weights:
            self._weights = [
                sum(1 / self._runs[state] for state in entry.states) for entry in entries
            ]
        return rng.choices(entries, self._weights)[0]

    def write(self, folder: Path) -> None:
        """Make `folder` contain exactly two files per entry: its case, and everything else.

        Raises `InfrastructureError` for disk errors.
        """
        files: dict[str, bytes] = {}
        for number, entry in self.entries.items():
            stored = _Stored(number, entry.origin, len(entry.states), entry.reached)
            files[f"{number}{_CASE_SUFFIX}"] = entry.case.encode()
            files[f"{number}{_STATES_SUFFIX}"] = msgspec.json.encode(stored) + b"\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            present = {path.name for path in folder.iterdir()}
            for name in sorted(files.keys() - present):
                part = folder / f".{name}"
                part.write_bytes(files[name])
                part.rename(folder / name)
            for name in sorted(present - files.keys()):
                (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write the corpus {folder}: {error.strerror}; free some space, then run "
                "the same command again"
            ) from error
