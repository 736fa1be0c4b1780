"""Answers a report's queries for parts of the runs, on many machines, and combines the answers.

For its own runs, each part answers the queries that read facts, with the same SQL as other reports.
The parts are then combined: rows about single runs are concatenated, counts and sums are added up
(`ADDED`), and the other queries run on the combined rows. Each part numbers its populations by
itself, so the combination assigns new numbers.

| query                              | in a part    | for the whole                            |
|------------------------------------|--------------|------------------------------------------|
| judged, failing_runs               | its runs     | rows of all parts, with final numbers    |
| the queries in `ADDED`             | answered     | added up                                 |
| slowest                            | the slowest  | the slowest of the rows of all parts     |
| latency_by_run, baseline_runs      | its runs     | rows of all parts, or of `slowest`       |
| all others                         | -            | answered from the combined rows          |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from results.questions.engines import (
    BASES,
    DuckEngine,
    Extent,
    in_any_order,
    in_order,
    kind_of,
    query,
    unordered,
)


class Sums(NamedTuple):
    """The rule that adds up an answer: rows that agree in the first `keys` columns become one row.

    Columns in `least` get the minimum, columns in `greatest` the maximum, and other columns the
    sum. A run belongs to only one part, so counts of distinct runs can also be added.
    """

    keys: int
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()


ADDED: Final = {
    "availability_cells": Sums(5),
    "downtime_cells": Sums(4),
    "election_causes": Sums(2, greatest=("highest_term",)),
    "exposure_cells": Sums(4),
    "faults": Sums(2, greatest=("mutation_down_max_ns", "read_down_max_ns")),
    "info_losses": Sums(3),
    "latency_cells": Sums(5),
    "operation_cells": Sums(5),
    "outage_cells": Sums(4, greatest=("most_ns",)),
    "outages": Sums(3, greatest=("longest_ns",)),
    "recovery_cells": Sums(5, greatest=("most_ns",)),
    "role_cells": Sums(5),
    "trend_cells": Sums(3, least=("first_started",)),
    "verdict_cells": Sums(5, least=("first_run",)),
}
LISTED: Final = ("latency_by_run", "baseline_runs")
"""Answers with one or more rows per run, made from facts."""


def part_of(engine: DuckEngine, extent: Extent) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and rows of each answer of one part. `engine` has the part's tables."""
    for name in BASES:
        engine.keep_base(name, extent)
    yield "judged", engine.sql("SELECT * FROM judged")
    yield "failing_runs", engine.sql("SELECT * FROM failing_runs")
    yield "traits", engine.sql("SELECT * FROM traits WHERE trait = 'bug'")
    yield "slowest", engine.sql("SELECT * FROM slowest")
    for name in (*ADDED, *LISTED):
        if name in extent.names():
            yield name, engine.sql(unordered(name)[0])


class Whole:
    """Combines the answers of all parts, in DuckDB; `close` drops them."""

    def __init__(self, scratch: Path) -> None:
        """Open a DuckDB with limited memory. It spills to the folder `scratch`."""
        self._engine = DuckEngine(scratch)
        self._names: set[str] = set()

    def add(self, part: int, name: str, rows: pa.Table) -> None:
        """Add some or all rows of a part's answer."""
        self._engine.take("told", rows)
        begin = (
            f'INSERT INTO "part_{name}"'
            if name in self._names
            else f'CREATE TABLE "part_{name}" AS'
        )
        self._names.add(name)
        self._engine.run(f"{begin} SELECT {part} AS part, * FROM told")  # noqa: S608

    def answers(self, extent: Extent) -> Iterator[tuple[str, pa.Table]]:
        """Yield every combined answer, except answers of the kind `of cells`."""
        engine = self._engine
        engine.run("CREATE VIEW traits AS SELECT * FROM part_traits")
        engine.run(f"CREATE VIEW runs AS {FIRST_OF_EACH}")
        engine.run("CREATE VIEW verdicts AS SELECT run, verdict, failed_ops, cpu_ns FROM runs")
        engine.keep("judged", unordered("judged")[0])
        engine.keep("numbers", NUMBERS)
        engine.run("CREATE OR REPLACE VIEW runs AS SELECT * FROM part_judged")
        engine.run("DROP TABLE judged")
        for name in ("judged", "failing_runs"):
            engine.run(f"CREATE VIEW {name} AS {NUMBERED.format(name=name)}")
        _, order = unordered("slowest")
        few = f"SELECT run, f FROM part_slowest ORDER BY {order}"  # noqa: S608
        engine.keep("slowest", few + extent.limit("slowest"))
        for name in extent.names():
            if kind_of(name) != "of cells" and name != "slowest":
                answer = engine.sql(self._text(name) + extent.limit(name))
                yield name, in_any_order(answer) if kind_of(name) == "cells" else answer

    def _text(self, name: str) -> str:
        if name in BASES:
            return in_order(name)
        if name not in (*ADDED, *LISTED):
            return query(name)
        rows = self._sums(name) if name in ADDED else LIST[name]
        order = re.sub(r"\b\w+\.", "", unordered(name)[1])
        return f"{rows} ORDER BY {order}" if order else rows

    def _sums(self, name: str) -> str:
        empty = self._engine.sql(f'SELECT * EXCLUDE (part) FROM "part_{name}" LIMIT 0')  # noqa: S608
        how = ADDED[name]
        columns = []
        for place, field in enumerate(empty.schema):
            column = f'"{field.name}"'
            if place < how.keys:
                columns.append(column)
            elif field.name in (*how.least, *how.greatest):
                columns.append(
                    f"{'min' if field.name in how.least else 'max'}({column}) AS {column}"
                )
            else:
                text = f"sum({column})"
                if pa.types.is_integer(field.type):
                    text = f"CAST({text} AS BIGINT)"
                columns.append(f"{text} AS {column}")
        grouped = ", ".join(f'"{key}"' for key in empty.schema.names[: how.keys])
        return f"SELECT {', '.join(columns)} FROM ({NUMBERED.format(name=name)}) GROUP BY {grouped}"  # noqa: S608

    def close(self) -> None:
        self._engine.close()


FIRST_OF_EACH: Final = """
    SELECT * FROM part_judged
    WHERE run IN (SELECT min(run) FROM part_judged GROUP BY part, population)
"""
NUMBERS: Final = """
    SELECT p.part, p.population AS own, j.population
    FROM part_judged p JOIN judged j ON j.run = p.run
"""
NUMBERED: Final = """
    SELECT p.* EXCLUDE (part) REPLACE (m.population AS population)
    FROM "part_{name}" p JOIN numbers m ON m.part = p.part AND m.own = p.population
"""
"""SQL for the rows of all parts, with the final numbers of populations."""
LIST: Final = {
    "latency_by_run": f"""
        SELECT t.* FROM ({NUMBERED.format(name="latency_by_run")}) t
        SEMI JOIN slowest s ON s.run = t.run AND s.f = t.f
    """,  # noqa: S608
    "baseline_runs": "SELECT * EXCLUDE (part) FROM part_baseline_runs",
}
