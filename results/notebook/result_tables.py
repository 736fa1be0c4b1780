"""What reports found of the runs of a lake, as tables `report.NAME`: for `results.open`.

They lie in the lake's folder `results` (`results.judging.result_lake`), where every report appends
what it found anew. Of each run and checker, and of the facts of each run, the result counts that is
settled before others, and then the newest: what the last report knew. The rows of all others are
left out by a filter, which is nothing as long as nothing was found twice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from results.facts.schema import FACT_TABLES
from results.judging.result_lake import ResultLake
from results.lake.log.files import BATCH, KEY, MAIN
from results.lake.log.snapshot import Snapshot
from results.notebook.choice import Choice

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from results.lake.log.place import Place

__all__ = ["REPORT", "ReportedTables"]

REPORT: Final = "report."
VERDICTS: Final = "verdicts"
_ID: Final = "result_id"
_FACTS: Final = ""


class ReportedTables:
    """The results that a lake had when it was opened."""

    def __init__(self, place: Place, snapshot: Snapshot) -> None:
        """`snapshot` is the state of the lake; raises as `results.notebook.tables.open`."""
        found = ResultLake.beside(place.uri, place.options)
        self._results = None if found is None else found.snapshot()
        self._snapshot = snapshot

    def tables(self) -> tuple[str, ...]:
        """Their names; none where no report was made."""
        if self._results is None or not self._results.files(MAIN):
            return ()
        return tuple(f"{REPORT}{name}" for name in (VERDICTS, *FACT_TABLES))

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
        from results.spark.frames import lake_frame

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
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        kind = self._kind(table)
        own, every = self._chosen[kind], self._listed[kind]
        if len(own) == len(every):
            return None
        there, appended = _appends(own), _appends(every)
        parts = []
        for (result_id, batch), runs in there.items():
            part = (ds.field(_ID) == result_id) & (ds.field(BATCH) == batch)
            if runs < appended[result_id, batch]:
                of = pc.and_(pc.equal(own[_ID], result_id), pc.equal(own[BATCH], batch))
                chosen = own.filter(of)[KEY].combine_chunks()
                part &= ds.field(KEY).isin(pa.array(chosen, pa.string()))
            parts.append(part)
        return functools.reduce(lambda left, right: left | right, parts)

    @functools.cached_property
    def _listed(self) -> dict[str, pa.Table]:
        """Every result there is of the runs of the lake: of checkers, and facts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self._results is not None
        names = [KEY, "run_batch", BATCH, "judged_at", "results", "marks"]
        rows = self._results.dataset(MAIN).to_table(columns=names).combine_chunks()
        parents = pc.list_parent_indices(rows["results"])
        columns = {name: rows[name].take(parents) for name in names[:4]}
        columns[_ID] = pc.list_flatten(rows["results"])
        columns["settled"] = pc.equal(pc.list_flatten(rows["marks"]), "")
        ids = columns[_ID].combine_chunks().dictionary_encode()
        checkers = self._checkers()
        kinds = pa.array([checkers.get(one, _FACTS) for one in ids.dictionary.to_pylist()])
        columns["checker"] = kinds.cast(pa.string()).take(ids.indices)
        runs = self._snapshot.dataset(MAIN).to_table(columns=[KEY, BATCH])
        flat = pa.table(columns).join(
            runs, keys=[KEY, "run_batch"], right_keys=[KEY, BATCH], join_type="left semi"
        )
        is_facts = pc.equal(flat["checker"], _FACTS)
        return {_FACTS: flat.filter(is_facts), VERDICTS: flat.filter(pc.invert(is_facts))}

    def _checkers(self) -> Mapping[str, str]:
        """Whose result each id is, of those that are of checkers."""
        import pyarrow as pa

        assert self._results is not None
        found: dict[str, str] = {}
        for batch in self._results.dataset(VERDICTS).to_batches(columns=[_ID, "checker"]):
            pairs = pa.Table.from_batches([batch]).group_by([_ID, "checker"]).aggregate([])
            found |= dict(zip(pairs[_ID].to_pylist(), pairs["checker"].to_pylist(), strict=True))
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
    import pyarrow.compute as pc

    order: list[Any] = [
        *((KEY, "ascending"), ("checker", "ascending"), ("settled", "descending")),
        *(("judged_at", "descending"), (BATCH, "ascending")),
    ]
    ordered = rows.sort_by(order).combine_chunks()
    if not len(ordered):
        return ordered.select([KEY, _ID, BATCH])
    changes = [
        pc.not_equal(ordered[name][1:].combine_chunks(), ordered[name][:-1].combine_chunks())
        for name in (KEY, "checker")
    ]
    first = pa.concat_arrays([pa.array([True]), pc.or_(*changes)])
    return ordered.filter(first).select([KEY, _ID, BATCH])


def _appends(rows: pa.Table) -> dict[tuple[str, str], int]:
    """How many runs of each result are in each batch."""
    counted = rows.group_by([_ID, BATCH]).aggregate([([], "count_all")])
    columns = (counted[name].to_pylist() for name in (_ID, BATCH, "count_all"))
    return {(one, batch): runs for one, batch, runs in zip(*columns, strict=True)}
