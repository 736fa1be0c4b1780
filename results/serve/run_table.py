"""All runs of a store or a lake as columns, newest first: what lists, groups and trends ask.

A text column has each different text once, and of each run the number of its text. So a question
is put to the texts, of which there are hundreds, and not to the runs, of which there may be a
million; runs are counted and sorted by those numbers (numpy). What differs from run to run (its
id, digest and time) is an Arrow array. A run takes about 300 bytes.

The order of the table is that of the list: newest first, runs without a time last. The last run of
any group in that order is its oldest.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from results.serve.run_index import OUTCOMES, RunRow

if TYPE_CHECKING:
    import pyarrow as pa

    from results.facts.intervals import Flags, Ints

__all__ = [
    "DISTINCT",
    "LIST_SEPARATOR",
    "NONE",
    "NUMBERS",
    "RunTable",
    "Texts",
    "table_of_rows",
]

NONE: Final = "(none)"
LIST_SEPARATOR: Final = ","
LISTED: Final = ("nemeses", "bugs")
CODED: Final = (
    *("name", "outcome", "problem", "label", "environment", "target", "profile", "workload"),
    *("versions", "code", "setting", "checker", "signature", "reason"),
)
DISTINCT: Final = ("run", "digest", "started")
NUMBERS: Final = {
    **dict.fromkeys(("seed", "ops", "faults"), "int64"),
    **dict.fromkeys(("wall_s", "simulated_s", "ok_per_s"), "float64"),
}
"""`ok_per_s` is there where it is known without reading a history."""
_SEARCHED: Final = (
    *("outcome", "problem", "started", "label", "environment", "target", "signature", "reason"),
    *("profile", "workload", "nemeses", "bugs", "digest", "versions"),
)
_INT64_MAX: Final = (1 << 63) - 1


class Texts:
    """One text of every run; the empty one means that there is none, as does `(none)`.

    `values` are the different ones (an Arrow array), `codes` the place of each run's among them;
    without codes every run has its own. Of a column of lists, `lists` are the values taken apart.
    """

    def __init__(
        self,
        values: pa.Array,
        codes: Ints | None = None,
        lists: Sequence[tuple[str, ...]] | None = None,
    ) -> None:
        self.values = values
        self.codes = codes
        self.lists = lists

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> Texts:
        """Any texts; `None` is none."""
        import numpy as np
        import pyarrow as pa

        known: dict[str, int] = {}
        plain = ("" if text is None or text == NONE else text for text in texts)
        codes = [known.setdefault(text, len(known)) for text in plain]
        values = pa.array([_encodable(text) for text in known], pa.string())
        return cls(values, np.array(codes, np.int64))

    @classmethod
    def of_lists(cls, lists: Iterable[tuple[str, ...]]) -> Texts:
        """Lists of names; their text is joined by commas."""
        import numpy as np
        import pyarrow as pa

        known: dict[tuple[str, ...], int] = {}
        codes = [known.setdefault(names, len(known)) for names in lists]
        kept = [tuple(map(_encodable, names)) for names in known]
        values = pa.array([LIST_SEPARATOR.join(names) for names in kept], pa.string())
        return cls(values, np.array(codes, np.int64), kept)

    def at(self, row: int) -> str:
        """The text of a run."""
        place = row if self.codes is None else int(self.codes[row])
        text: str = self.values[place].as_py()
        return text

    def shown(self, row: int) -> str:
        """The same for people and links: `(none)` where there is none."""
        return self.at(row) or NONE

    @functools.cached_property
    def names(self) -> list[str]:
        """The different texts, as `shown`."""
        return [text or NONE for text in self.values.to_pylist()]

    def items_at(self, row: int) -> tuple[str, ...]:
        """The names of a run's list."""
        assert self.lists is not None
        assert self.codes is not None
        return self.lists[int(self.codes[row])]

    def of_runs(self, flags: Flags) -> Flags:
        """From which texts to which runs."""
        return flags if self.codes is None else flags[self.codes]

    def that(self, holds: Callable[[str], bool]) -> Flags:
        """The runs whose text it holds for; the empty one stands for none."""
        import numpy as np

        return self.of_runs(np.fromiter(map(holds, self.values.to_pylist()), np.bool_))

    def listing(self, holds: Callable[[tuple[str, ...]], bool]) -> Flags:
        """The runs whose list it holds for."""
        import numpy as np

        assert self.lists is not None
        return self.of_runs(np.fromiter(map(holds, self.lists), np.bool_))

    def equal(self, text: str) -> Flags:
        """The runs with exactly this text; `(none)` is that of those without one."""
        import pyarrow.compute as pc

        found = pc.equal(self.values, "" if text == NONE else text)
        return self.of_runs(found.to_numpy(zero_copy_only=False))

    def containing(self, word: str) -> Flags:
        """The runs with this word, in lower case, somewhere in their text in any case."""
        import pyarrow.compute as pc

        if self.lists is not None:
            return self.listing(lambda names: any(word in name.lower() for name in names))
        found = pc.match_substring(pc.utf8_lower(self.values), word)
        return self.of_runs(found.to_numpy(zero_copy_only=False))

    def keys(self, rows: Ints, rank: Sequence[str] | None = None) -> pa.Array:
        """What to sort runs by: null where there is no text; `rank` is an order of its own."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.codes is None:
            texts = self.values.take(pa.array(rows))
            return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        texts = self.values.to_pylist()
        place = {text: number for number, text in enumerate(rank or sorted(texts))}
        ranks = np.array([place[text] for text in texts], np.int64)
        empty = np.array([text == "" for text in texts], np.bool_)
        codes = self.codes[rows]
        return pa.array(ranks[codes], mask=empty[codes])


class RunTable:
    """Runs as columns: `texts`, `numbers` (Arrow arrays, null where not known)."""

    def __init__(
        self,
        texts: Mapping[str, Texts],
        numbers: Mapping[str, pa.Array],
        interrupted: Flags,
        *,
        row: Callable[[int], RunRow] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """`row` gives a run of its own making for a place; else one is made from the columns."""
        self.texts = {**texts, "day": _days(texts["started"])}
        self.numbers = numbers
        self.interrupted = interrupted
        self.notes = notes
        self._row = row

    def __len__(self) -> int:
        return len(self.interrupted)

    def noting(self, *notes: str) -> RunTable:
        """The same runs, with something else to say about the whole."""
        if notes == self.notes:
            return self
        made = copy.copy(self)
        made.notes = notes
        return made

    @functools.cached_property
    def every(self) -> Ints:
        """The places of all runs."""
        import numpy as np

        return np.arange(len(self), dtype=np.int64)

    def row(self, place: int) -> RunRow:
        """The run at a place."""
        return self._made(place) if self._row is None else self._row(place)

    def key(self, place: int) -> str:
        """Its key."""
        return f"{self.texts['name'].at(place)}/{self.texts['run'].at(place)}"

    def find(self, key: str) -> int | None:
        """The place of the run "name/run"."""
        name, slash, run = key.partition("/")
        if not slash:
            return None
        found = (self.texts["run"].equal(run) & self.texts["name"].equal(name)).nonzero()[0]
        exact = (int(place) for place in found if self.key(int(place)) == key)
        return next(exact, None)

    def containing(self, word: str) -> Flags:
        """The runs that have a word in lower case somewhere."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self.texts["name"]
        assert name.codes is not None
        names = name.values.take(pa.array(name.codes))
        keys = pc.binary_join_element_wise(names, self.texts["run"].values, "/")
        seeds = pc.fill_null(pc.cast(self.numbers["seed"], pa.string()), "")
        found = Texts(keys).containing(word) | Texts(seeds).containing(word)
        for column in _SEARCHED:
            found |= self.texts[column].containing(word)
        return found | self.interrupted if word in "interrupted" else found

    def outcomes(self, rows: Ints) -> dict[str, int]:
        """How many of these runs came out how."""
        import numpy as np

        texts = self.texts["outcome"]
        assert texts.codes is not None
        counts = np.bincount(texts.codes[rows], minlength=len(texts.names)).tolist()
        return {name: n for name, n in zip(texts.names, counts, strict=True) if n}

    def groups(self, rows: Ints, names: Sequence[str]) -> Iterator[Ints]:
        """The runs of each combination of texts in these columns, in the order of `rows`."""
        import numpy as np

        combined = np.zeros(len(rows), np.int64)
        most = 1
        for name in names:
            texts = self.texts[name]
            assert texts.codes is not None
            most *= len(texts.values)
            if most > _INT64_MAX:
                found, combined = np.unique(combined, return_inverse=True)
                most = len(found) * len(texts.values)
            combined = combined * len(texts.values) + texts.codes[rows]
        order = np.argsort(combined, kind="stable")
        ends = np.flatnonzero(np.diff(combined[order])) + 1
        if len(rows):
            yield from np.split(rows[order], ends)

    def sorted(self, rows: Ints, name: str, *, descending: bool) -> Ints:
        """The runs by a column; what has nothing in it comes last either way."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name in NUMBERS:
            keys = self.numbers[name].take(pa.array(rows))
        else:
            keys = self.texts[name].keys(rows, OUTCOMES if name == "outcome" else None)
        way = "descending" if descending else "ascending"
        order = pc.array_sort_indices(keys, order=way, null_placement="at_end")
        found: Ints = rows[order.to_numpy()]
        return found

    def _made(self, place: int) -> RunRow:
        """A run from its columns."""
        values: dict[str, Any] = {name: self.texts[name].at(place) for name in (*CODED, *DISTINCT)}
        values |= {name: values[name] or None for name in ("label", "problem")}
        values |= {name: self.texts[name].items_at(place) for name in LISTED}
        values |= {
            name: column[place].as_py()
            for name, column in self.numbers.items()
            if name != "ok_per_s"
        }
        interrupted = bool(self.interrupted[place])
        return RunRow(key=self.key(place), interrupted=interrupted, **values)


def table_of_rows(rows: Sequence[RunRow], notes: tuple[str, ...] = ()) -> RunTable:
    """Runs that are rows already, newest first."""
    import numpy as np
    import pyarrow as pa

    texts = {name: Texts.of(getattr(row, name) for row in rows) for name in CODED}
    texts |= {name: Texts.of_lists(getattr(row, name) for row in rows) for name in LISTED}
    for name in DISTINCT:
        texts[name] = Texts(pa.array([_encodable(getattr(row, name)) for row in rows], pa.string()))
    numbers = {
        name: pa.array([_bounded(getattr(row, name, None)) for row in rows], getattr(pa, kind)())
        for name, kind in NUMBERS.items()
    }
    interrupted = np.array([row.interrupted for row in rows], np.bool_)
    return RunTable(texts, numbers, interrupted, row=rows.__getitem__, notes=notes)


def _days(started: Texts) -> Texts:
    import pyarrow.compute as pc

    coded = pc.dictionary_encode(pc.utf8_slice_codeunits(started.values, 0, 10))
    return Texts(coded.dictionary, coded.indices.to_numpy(zero_copy_only=False).astype("int64"))


def _bounded(number: float | None) -> float | None:
    """A number that a column can hold: a record from elsewhere may say anything."""
    return number if number is not None and abs(number) <= _INT64_MAX else None


def _encodable(text: str) -> str:
    """As pages show it: half a surrogate pair from somebody's file is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
