"""Keeps all runs of a store or a lake as one table in DuckDB's memory, up to date.

The table `runs` has the columns of `results.serve.run_rows`. When the lake gets a new version, rows
of new files are added. If files were removed, the table is recreated. Updates run in the
background: pages wait briefly for a newer table, and then show the existing table. While a lake
does not answer, pages show its last state, and a note says since when.

The runs of a store are first ingested into its lake. A run that the ingest rejects becomes a row
with the outcome `broken` and the reason.

A page reads in one transaction (`Reading`), so all its numbers are from one version. Answers are
cached per version.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FileType

from harness.errors import HarnessError, InfrastructureError, counted
from results.facts.problems import RUNNING, SEED_WITHOUT_RUN, Problem, Problems
from results.lake.log.delta import State
from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import LOG_FOLDER, MAIN, FileRef
from results.lake.log.lake import Lake
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import Patience, troubles
from results.lake.transfer.ingest import Ingested
from results.lake.transfer.store_lake import lake_of_store
from results.questions.engines import DuckEngine
from results.serve.query import Where
from results.serve.run_rows import (
    BROKEN,
    COLUMNS,
    UNFINISHED,
    RunRow,
    create_runs,
    row_of,
    selected,
)

LOOK_EVERY_S: Final = 2.0
LOOK_REST: Final = 10.0
"""The pause after an update, as a multiple of the duration of the update."""
FAILED_REST_S: Final = 15.0
WAIT_S: Final = 2.0
"""The longest time that a page waits for an update."""
QUICK: Final = Patience(attempts_max=4, total_s=5.0)
"""Limits for retries of storage requests that a page waits for."""
ANSWERS_KEPT: Final = 128
LATE_ROWS_MAX: Final = 10_000
NOTES_MAX: Final = 20

Row = dict[str, Any]


class Reading:
    """One state of the table `runs`. One page reads it in one transaction."""

    def __init__(
        self,
        connection: Any,
        version: int,
        notes: tuple[str, ...],
        kept: OrderedDict[Any, list[Row]],
    ) -> None:
        self._connection = connection
        self._version = version
        self._kept = kept
        self._searches: dict[str, Where] = {}
        self.notes = notes

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Answer a query, if possible from the cache. Callers must not change the answer."""
        asked = (self._version, sql, tuple(values))
        answer = self._kept.get(asked)
        if answer is None:
            for name in [name for name in self._searches if name in sql]:
                where = self._searches.pop(name)
                self._connection.execute(
                    f"CREATE TEMP TABLE {name} AS SELECT rowid AS id FROM runs WHERE {where.sql}",  # noqa: S608
                    where.values,
                )
            cursor = self._connection.execute(sql, list(values))
            names = [column[0] for column in cursor.description]
            answer = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            self._kept[asked] = answer
        with contextlib.suppress(KeyError):
            # another thread may have removed the answer from the cache
            self._kept.move_to_end(asked)
            while len(self._kept) > ANSWERS_KEPT:
                self._kept.popitem(last=False)
        return answer

    def once(self, where: Where) -> Where:
        """Return a condition equivalent to `where` that is evaluated only once per page."""
        name = f"found_{hashlib.sha256(repr(where).encode()).hexdigest()}"
        self._searches[name] = where
        return Where(f"rowid IN (SELECT id FROM {name})", ())  # noqa: S608

    def runs(self, where: Where, order: str, *, limit: int, offset: int = 0) -> list[RunRow]:
        """Return up to `limit` runs that meet a condition, in this order, beginning at `offset`."""
        sql = f"SELECT * FROM runs WHERE {where.sql} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608
        return [row_of(row) for row in self.rows(sql, (*where.values, limit, offset))]

    def run(self, key: str) -> RunRow | None:
        """Return the run with this key ("name/run"), or `None` if it does not exist."""
        rows = self.runs(Where("key = ?", (key,)), "key", limit=1)
        return rows[0] if rows else None


class Runs:
    """The table `runs`, kept up to date. Safe to use from many threads."""

    def __init__(self, place: str, scratch: Path, progress: Callable[[Ingested], None]) -> None:
        """Read the runs of `place`: the path of a store, or the path or URI of a lake.

        Raises `UsageError` if there is neither a store nor a lake, or if access is refused. Raises
        `InfrastructureError` if the storage does not answer.
        """
        self.store = None if _is_lake(place) else Path(place)
        self._problems = Problems()
        uri = place if self.store is None else self._ingest(progress)
        self.lake = Lake.open(uri)
        self.lake.patience = QUICK
        self.using = threading.Lock()
        """The lock of `lake`. Only one thread at a time may use `lake`."""
        self.version = -1
        self._engine = DuckEngine(scratch)
        # Up to this LIMIT, DuckDB sorts only the sort columns, and then reads the other columns.
        self._engine.run(f"SET GLOBAL late_materialization_max_rows = {LATE_ROWS_MAX}")
        self._files: frozenset[str] = frozenset()
        self._broken: list[tuple[str, str, str]] = []
        self._notes: tuple[str, ...] = ()
        self._failed: tuple[str, ...] = ()
        self._kept: OrderedDict[Any, list[Row]] = OrderedDict()
        self._looking = threading.Lock()
        self._looked = threading.Event()
        self._read()
        self._next_s = time.monotonic() + LOOK_EVERY_S

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reading]:
        """Open the table of runs. If an update is due, start it and wait up to `WAIT_S` for it."""
        if time.monotonic() >= self._next_s and self._looking.acquire(blocking=False):
            self._looked.clear()
            threading.Thread(target=self._look, daemon=True).start()
            self._looked.wait(WAIT_S)
        with self.cursor() as cursor:
            cursor.begin()
            [(version,)] = cursor.execute("SELECT number FROM version").fetchall()
            yield Reading(cursor, version, (*self._failed, *self._notes), self._kept)

    def cursor(self) -> contextlib.closing[Any]:
        """Return a new connection to the same DuckDB, as a context manager."""
        return contextlib.closing(self._engine.connection.cursor())

    def close(self) -> None:
        """Close DuckDB, which drops the table `runs`."""
        self._engine.close()

    def _look(self) -> None:
        began_s = time.monotonic()
        try:
            if self.store is not None:
                self._ingest()
            self._read()
        except Exception as error:  # noqa: BLE001 - a note reports any error
            text = error if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            now = dt.datetime.now(dt.UTC)
            place = "lake" if self.store is None else "store"
            held = f"this is what it held before {now:%H:%M:%S} UTC"
            self._failed = (f"the {place} cannot be read ({text}); {held}",)
            rest_s = FAILED_REST_S
        else:
            rest_s = max(LOOK_EVERY_S, (time.monotonic() - began_s) * LOOK_REST)
        finally:
            self._next_s = time.monotonic() + rest_s
            self._looked.set()
            self._looking.release()

    def _ingest(self, progress: Callable[[Ingested], None] = lambda _: None) -> str:
        assert self.store is not None
        update = lake_of_store(self.store, may_be_empty=True, progress=progress)
        self._problems = update.problems
        return update.uri

    def _read(self) -> None:
        with self.using:
            state = QUICK.call(f"read {self.lake.main.uri}", self._state)
        problems = self._problems.kept
        broken = [
            (problem.run, UNFINISHED if problem.kind == RUNNING else BROKEN, problem.text)
            for problem in problems
            if _is_of_run(problem)
        ]
        if state.version != self.version or broken != self._broken:
            self._write(state, broken)
        others = [
            f"{problem.run}: {problem.text}" for problem in problems if not _is_of_run(problem)
        ]
        more = self._problems.total - len(broken) - len(others[:NOTES_MAX])
        others[NOTES_MAX:] = [f"{counted(more, 'more problem')} of the store"] if more > 0 else []
        self._notes = tuple(others)
        self._failed = ()

    def _state(self) -> State:
        """Read the newest state of the lake's `runs`; raise an error if its log is gone.

        A mere refresh would not notice this.
        """
        place = self.lake.place
        with troubles(place.uri):
            info = place.files.get_file_info(f"{MAIN}/{LOG_FOLDER}")
        if info.type == FileType.NotFound:
            raise InfrastructureError(f"{place.uri} no longer has a table of runs")
        return self.lake.main.refresh()

    def _write(self, state: State, broken: list[tuple[str, str, str]]) -> None:
        """Add the rows of new files, or recreate the table, in a single transaction."""
        names = frozenset(state.files)
        anew = not self._files <= names or broken != self._broken or self.version < 0
        files = [file for name, file in state.files.items() if anew or name not in self._files]
        with self.cursor() as cursor, readable(self.lake.place.uri):
            cursor.begin()
            rows = selected(self._source(cursor, state, files), of_store=self.store is not None)
            cursor.execute(create_runs(rows) if anew else f"INSERT INTO runs {rows}")
            if anew and broken:
                rows_of = [[key, key, key, outcome, text, key] for key, outcome, text in broken]
                cursor.executemany(_ADD_BROKEN, rows_of)
            number = int(time.monotonic_ns())
            cursor.execute(f"CREATE OR REPLACE TABLE version AS SELECT {number} AS number")
            cursor.commit()
        self._kept.clear()
        self._files, self._broken, self.version = names, broken, state.version

    def _source(self, cursor: Any, state: State, files: Sequence[FileRef]) -> str:
        snapshot = Snapshot(state.version, {MAIN: tuple(files)}, self.lake.schemas, self.lake.place)
        return source_of(cursor, snapshot, MAIN, COLUMNS)


def _is_of_run(problem: Problem) -> bool:
    """Whether a problem is about an existing run folder with wrong or incomplete content."""
    return problem.run.count("/") == 1 and problem.kind not in {"case", SEED_WITHOUT_RUN}


_ADD_BROKEN: Final = """
    INSERT INTO runs BY NAME
    SELECT ? AS key, split_part(?, '/', 1) AS name, split_part(?, '/', 2) AS run,
           ? AS outcome, ? AS problem, false AS interrupted
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE key = ?)
"""


def _is_lake(place: str) -> bool:
    from results.report.report import is_lake

    return is_lake(place)
