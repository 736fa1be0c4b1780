"""What reports found of the runs of a lake, as tables `report.NAME`: for `results.open`.

They lie in the lake's folder `results` (`results.lake.judged`), where every report appends what it
found anew. Of each run and checker, and of the facts of each run, the result counts that is settled
before others, and then the newest: what the last report knew. The rows of all others are left out
by a filter, which is nothing as long as nothing was found twice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from results.choice import Choice
from results.lake.files import BATCH, KEY, MAIN
from results.lake.judged import FACTS_KEPT, ResultLake
from results.lake.snapshot import RunIndex, Snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from results.lake.place import Place

__all__ = ["REPORT", "ReportedTables"]

REPORT: Final = "report."
VERDICTS: Final = "verdicts"
_ID: Final = "result_id"
_FACTS: Final = ""


class ReportedTables:
    """The results that a lake had when it was opened."""

    def __init__(self, place: Place, snapshot: Snapshot) -> None:
        """`snapshot` is the state of the lake; raises as `results.opened.open`."""
        found = ResultLake.beside(place.uri, place.options)
        self._results = None if found is None else found.snapshot()
        self._snapshot = snapshot

    def tables(self) -> tuple[str, ...]:
        """Their names; none where no report was made."""
        if self._results is None or not self._results.files(MAIN):
            return ()
        return tuple(f"{REPORT}{name}" for name in (VERDICTS, *FACTS_KEPT))

    def dataset(self, table: str, choice: Choice) -> ds.Dataset:
        """The rows that count, of some runs."""
        narrowed = self._narrowed(table, choice)
        found = narrowed.dataset(_own(table))
        for wanted in (choice.rows(), self._counts(_own(table))):
            if wanted is not None:
                found = found.filter(wanted)
        return found

    def spark(self, session: SparkSession, table: str, choice: Choice) -> DataFrame:
        """The same as a data frame."""
        from results.spark_lake.frames import lake_frame

        frame: DataFrame = lake_frame(session, self._narrowed(table, choice), _own(table))
        if choice.runs is not None:
            frame = frame.where(frame[KEY].isin(sorted(choice.runs)))
        counts = session.createDataFrame(self._chosen[self._kind(_own(table))])
        return frame.join(counts, [KEY, _ID, BATCH], "left_semi")

    def _narrowed(self, table: str, choice: Choice) -> Snapshot:
        """The results with the files that may have rows of these runs."""
        assert self._results is not None
        name = _own(table)
        files = tuple(file for file in self._results.files(name) if choice.takes_file(file))
        return dataclasses.replace(self._results, tables={name: files})

    @staticmethod
    def _kind(table: str) -> str:
        return VERDICTS if table == VERDICTS else _FACTS

    def _counts(self, table: str) -> ds.Expression | None:
        """What rows that count are; `None`: all do."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        kind = self._kind(table)
        own, every = self._chosen[kind], self._listed[kind]
        if len(own) == len(every):
            return None
        parts = []
        for (result_id, batch), runs in _by_append(own).items():
            part = (ds.field(_ID) == result_id) & (ds.field(BATCH) == batch)
            if len(runs) < len(_by_append(every)[result_id, batch]):
                part &= ds.field(KEY).isin(pa.array(sorted(runs), pa.string()))
            parts.append(part)
        return functools.reduce(lambda left, right: left | right, parts)

    @functools.cached_property
    def _listed(self) -> dict[str, pa.Table]:
        """Every result there is of the runs of the lake: of checkers, and facts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self._results is not None
        names = [KEY, "run_batch", BATCH, "judged_at", "results", "marks"]
        rows = self._results.dataset(MAIN).to_table(columns=names)
        batches = RunIndex(self._snapshot.place).of(self._snapshot.files(MAIN))
        wanted = [batches.get(run) for run in rows[KEY].to_pylist()]
        rows = rows.filter(pc.equal(rows["run_batch"], pa.array(wanted, pa.string())))
        parents = pc.list_parent_indices(rows["results"])
        flat = pa.table(
            {
                KEY: rows[KEY].take(parents),
                _ID: pc.list_flatten(rows["results"]),
                BATCH: rows[BATCH].take(parents),
                "settled": pc.equal(pc.list_flatten(rows["marks"]), ""),
                "judged_at": rows["judged_at"].take(parents),
            }
        )
        checkers = self._checkers()
        kinds = pa.array([checkers.get(one, _FACTS) for one in flat[_ID].to_pylist()], pa.string())
        flat = flat.append_column("checker", kinds)
        is_facts = pc.equal(flat["checker"], _FACTS)
        return {_FACTS: flat.filter(is_facts), VERDICTS: flat.filter(pc.invert(is_facts))}

    def _checkers(self) -> Mapping[str, str]:
        """Whose result each id is, of those that are of checkers."""
        assert self._results is not None
        found: dict[str, str] = {}
        batches = self._results.dataset(VERDICTS).to_batches(columns=[_ID, "checker"])
        for batch in batches:
            found |= dict(zip(batch[_ID].to_pylist(), batch["checker"].to_pylist(), strict=True))
        return found

    @functools.cached_property
    def _chosen(self) -> dict[str, pa.Table]:
        """Run, id and batch of the results that count."""
        return {kind: _best(rows) for kind, rows in self._listed.items()}


def _own(table: str) -> str:
    return table.removeprefix(REPORT)


def _best(rows: pa.Table) -> pa.Table:
    """The first of each run and checker: settled, then the newest."""
    import pyarrow as pa

    order: list[Any] = [
        *((KEY, "ascending"), ("checker", "ascending"), ("settled", "descending")),
        *(("judged_at", "descending"), (BATCH, "ascending")),
    ]
    ordered = rows.sort_by(order)
    keys = zip(ordered[KEY].to_pylist(), ordered["checker"].to_pylist(), strict=True)
    last: tuple[str, str] | None = None
    first = []
    for key in keys:
        first.append(key != last)
        last = key
    return ordered.filter(pa.array(first, pa.bool_())).select([KEY, _ID, BATCH])


def _by_append(rows: pa.Table) -> dict[tuple[str, str], list[str]]:
    """The runs of each result in each batch."""
    found: dict[tuple[str, str], list[str]] = {}
    columns: Iterable[list[str]] = (rows[name].to_pylist() for name in (_ID, BATCH, KEY))
    for result_id, batch, run in zip(*columns, strict=True):
        found.setdefault((result_id, batch), []).append(run)
    return found
