"""A lake: whole runs in several Delta tables, appended by any number of writers at once.

Delta commits one table at a time, but a run must appear in all tables at once. The protocol:

**Append.** A writer draws a new batch id, and uploads the batch's files (one per table and
partition). It commits the files to their tables, and to the table `runs` last. A batch is *visible*
once `runs` has it. `Snapshot` only shows rows of visible batches.

* The commit to `runs` is *exact* (`results.lake.log.delta`): it fails if `runs` has changed since
  the writer read it. So of two writers of the same run, only one succeeds. The other writer
  abandons its batch, and appends its remaining runs under a new batch.
* If the answer to a commit was lost, the writer looks for the file in the table's log, or for the
  batch in `runs`. It gives up a batch only after it has read a later version, because a commit in
  progress must then fail.
* A commit to another table may be repeated, since a log holds a path only once.
* A writer that dies leaves an invisible batch.

**Snapshot.** A reader reads `runs` first, then each other table, so it sees all files of visible
batches. A merged file has rows of many batches, and its name contains a version of `runs` at which
all of them were visible. If this version is newer than the state of `runs` that was read, the
reader starts again.

**Compaction** (`results.lake.upkeep.compaction`) merges whole visible files of a partition. Its
exact commit requires that all its inputs still exist.

**Removal** (`results.lake.upkeep.removal`) rewrites files without the rows of the removed runs, the
files of `runs` first. From then on, rows of these runs in other tables join with no row of `runs`.

**Vacuum** (`results.lake.upkeep.vacuum`) removes invisible batches after a grace period. A writer
may be suspended for longer than that. So vacuum first *fences* the batches: an exact commit to
`runs` records that they must never be committed. The writer's own exact commit then fails. So a
clock never decides whether data are lost.

Readers that do not use `Snapshot` must join a table with `runs` on (run, batch). A run must always
have the same partition (target, label, day). Use a lake object only in one thread of one process.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.dataset as ds

from harness.errors import InfrastructureError, UsageError, listed
from harness.exact import whole_number
from results.lake.log.append_buffer import AppendBuffer, buffers_of
from results.lake.log.delta import Addition, Log, State
from results.lake.log.files import LOG_FOLDER, MAIN, FileRef, Partition
from results.lake.log.location import Place
from results.lake.log.row_files import stored_schema, upload
from results.lake.log.snapshot import RunIndex, Snapshot
from results.lake.log.storage_errors import AgainError, Patience
from results.lake.tables.schema import SCHEMA_VERSION
from results.lake.tables.schema import schemas as lake_schemas

LAKE: Final = "harness.lake"
LAKE_FORM: Final = "1"
SCHEMA: Final = "harness.schema"
ROUNDS_MAX: Final = 20
OPENING_S: Final = 60.0  # after a minute, a wrong URI is more likely than a busy store
THREADS_REMOTE: Final = 8  # more threads than cores, because commits mostly wait for the network


class Lake:
    """The tables at one URI: a folder, or `s3://BUCKET/PREFIX`.

    `schemas` has the columns of every table (default: the tables of runs). All tables begin with
    the partition columns and the run. A lake of another schema `version` is refused.
    """

    made_again_by: ClassVar[str] = "make a new one with `harness ingest STORE --lake URI`"
    runs_once: ClassVar[bool] = True  # if false, a run may be appended again in another batch

    def __init__(
        self,
        place: Place,
        schemas: Mapping[str, pa.Schema] | None,
        version: int,
        patience: Patience,
    ) -> None:
        """Create an unopened lake. Use `open` instead."""
        schemas = schemas or lake_schemas()
        assert MAIN in schemas
        self.place = place
        self.version = version
        self.patience = patience
        self.given = schemas
        self.schemas = {table: stored_schema(schema) for table, schema in schemas.items()}
        self.logs = {table: Log(place, table) for table in schemas}
        self.main = self.logs[MAIN]
        self.tables = sorted(schemas, key=lambda table: table == MAIN)
        self.index = RunIndex(place)
        self._threads = 1 if place.local else THREADS_REMOTE

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        schemas: Mapping[str, pa.Schema] | None = None,
        version: int = SCHEMA_VERSION,
        storage_options: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        create: bool = False,
    ) -> Lake:
        """Open the lake at `uri`. With `create`, make a missing or partly created lake.

        Raises `UsageError` if there is no lake, another kind of data, or a newer release's lake, or
        if access is denied. Raises `InfrastructureError` if the store does not answer.
        """
        lake = cls(Place(uri, storage_options), schemas, version, patience or Patience())
        attempt = lake._create if create else lake._find_or_say
        doing = f"create a lake at {lake.place.uri}" if create else f"open {lake.place.uri}"
        dataclasses.replace(lake.patience, total_s=min(lake.patience.total_s, OPENING_S)).call(
            doing, attempt
        )
        return lake

    # Opening -------------------------------------------------------------------------------------

    def _find(self) -> bool:
        if not self.main.exists():
            return False
        self._accept(MAIN, self.main.settings())
        missing = sorted(table for table, log in self.logs.items() if not log.exists())
        if missing:
            raise self._lacking(missing)
        for table, log in self.logs.items():
            self._accept_columns(table, log.schema())
        return True

    def _find_or_say(self) -> None:
        if not self._find():
            self._refuse_foreign()
            raise UsageError(
                f"there is no lake at {self.place.uri!r}; make a lake with `harness ingest STORE "
                "--lake URI`"
            )

    def _lacking(self, tables: Sequence[str]) -> InfrastructureError:
        return InfrastructureError(
            f"the lake at {self.place.uri} lacks {listed(tables, limit=3)}: restore the removed "
            "folders"
        )

    def _accept(self, table: str, settings: Mapping[str, str]) -> None:
        form, schema = settings.get(LAKE), settings.get(SCHEMA, "")
        if form is None or whole_number(schema) is None:
            raise UsageError(
                f"{self.place.uri!r} has a table {table!r} that does not belong to a harness lake; "
                "name another place for the lake"
            )
        if form != LAKE_FORM or int(schema) != self.version:
            newer = form != LAKE_FORM or int(schema) > self.version
            raise UsageError(
                f"the lake at {self.place.uri!r} has schema {schema} (form {form}), this harness "
                f"supports {self.version} (form {LAKE_FORM}): "
                + ("install a newer harness" if newer else self.made_again_by)
            )

    def _accept_columns(self, table: str, found: pa.Schema) -> None:
        wanted = self.schemas[table]
        if found.names != wanted.names or not all(map(_alike, wanted.types, found.types)):
            raise UsageError(
                f"the columns of the table {self.place.uri_of(table)!r} are not the columns that "
                "this harness creates: no release of the harness made this lake"
            )

    def _refuse_foreign(self) -> None:
        # Another process may be creating the lake: the folder is empty at first, and then has a
        # table.
        entries = self.place.entries()
        begun = {*self.place.empty_folders(), *self.place.tables()} & self.schemas.keys()
        entries = [name for name in entries if name not in begun]
        if LOG_FOLDER in entries:
            raise UsageError(
                f"{self.place.uri!r} is a single Delta table, not a lake; name another place"
            )
        if entries:
            raise UsageError(
                f"{self.place.uri!r} holds {listed(entries, limit=3)} and is not a lake; name an "
                "empty place"
            )

    def _create(self) -> None:
        if self._find():
            return
        self._refuse_foreign()
        self._make()
        if not self._find():
            raise AgainError("the new table of runs is not visible yet")

    def _make(self) -> None:
        """Create the tables, `runs` last: a folder without `runs` is not a lake yet."""
        settings = {LAKE: LAKE_FORM, SCHEMA: str(self.version)}
        there = {table for table, log in self.logs.items() if log.exists()}
        for table in sorted(there):
            self._accept(table, self.logs[table].settings())
        if any(self.logs[table].refresh().files for table in there):
            if self.main.exists():
                raise AgainError("another process created the lake and appended to it meanwhile")
            raise self._lacking([MAIN])
        for table in sorted(self.logs.keys() - there, key=lambda table: (table == MAIN, table)):
            self.logs[table].create(self.schemas[table], settings)

    # Appending -----------------------------------------------------------------------------------

    def append(self, rows: Mapping[str, pa.Table] | AppendBuffer) -> list[str]:
        """Append whole runs. When the call returns, every reader sees all of these runs.

        `rows` has one row per run in `runs`, and the rows of the same runs in other tables. Runs
        that the lake already has are left out and returned. The runs of a partition are one batch,
        with one file per table: pass about 128 MB at most. After an error, a batch is visible as a
        whole or not at all. Repeat the append to complete it.
        """
        some = [rows] if isinstance(rows, AppendBuffer) else buffers_of(rows, self.given)
        return [run for buffer in some for run in self._append(buffer)]

    def _append(self, buffer: AppendBuffer) -> list[str]:
        skipped: list[str] = []
        for number in range(ROUNDS_MAX):
            held = self.patience.call(
                f"read {self.main.uri}", functools.partial(self._held, buffer.partitions)
            )
            skipped += [run for run in buffer.partitions if run in held]
            if held or number:
                buffer = buffer.without(held)
            if not len(buffer) or self._append_batch(buffer):
                return skipped
        raise InfrastructureError(
            f"{self.place.uri}: the append failed {ROUNDS_MAX} times, because other processes "
            "appended some of its runs, or because a vacuum with too short a grace period fenced "
            "it; try again when these processes have ended"
        )

    def _append_batch(self, buffer: AppendBuffer) -> bool:
        """Append a batch; return whether it is visible now. If not, it never becomes visible."""

        def append(table: str) -> None:
            self._commit_child(table, self._upload(buffer, table))

        self._each(append, [table for table in buffer.files() if table != MAIN])
        addition = self._upload(buffer, MAIN)
        return self.patience.call(
            f"commit to {self.main.uri}",
            lambda: self._commit_main(buffer.batch, addition, buffer.partitions),
        )

    def _upload(self, buffer: AppendBuffer, table: str) -> Addition:
        (partition,) = {*buffer.partitions.values()}
        file = buffer.files()[table]
        return self.patience.call(
            f"write to {self.place.uri}",
            lambda: upload(self.place, table, buffer.new_name(), file, partition),
        )

    def _each(self, function: Callable[[str], None], tables: Sequence[str]) -> None:
        if self._threads == 1:
            for table in tables:
                function(table)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(function, tables))

    def _commit_child(self, table: str, addition: Addition) -> None:
        log, tried = self.logs[table], False

        def attempt() -> None:
            nonlocal tried
            if tried and addition.name in log.refresh().files:
                return
            tried = True
            log.commit(self.schemas[table], add=[addition], exact=False)

        self.patience.call(f"commit to {log.uri}", attempt)

    def _commit_main(
        self, batch: str, addition: Addition, partitions: Mapping[str, Partition]
    ) -> bool:
        held = self._held(partitions)
        if batch in held.values():
            return True  # an earlier attempt succeeded, but its answer was lost
        if held or self.main.fenced(batch):
            return False
        self.main.commit(self.schemas[MAIN], add=[addition], exact=True)
        return True

    def _held(self, partitions: Mapping[str, Partition]) -> dict[str, str]:
        """Return the batch of each of these runs that the newest state of `runs` has."""
        state = self.main.refresh()
        self.index.forget_all_but(state.files)
        bounds: dict[Partition, tuple[str, str]] = {}
        for run, partition in partitions.items():
            low, high = bounds.get(partition, (run, run))
            bounds[partition] = min(low, run), max(high, run)
        files = [
            file
            for file in state.files.values()
            if (span := bounds.get(file.partition)) is not None
            and file.first_run <= span[1]
            and file.last_run >= span[0]
        ]
        batches = self.index.of(files)
        return {run: batches[run] for run in partitions if run in batches}

    # Reading -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Read the newest consistent version of all tables."""
        return self.patience.call(f"read {self.place.uri}", self._snapshot)

    def _snapshot(self) -> Snapshot:
        main = self.main.refresh()
        tables = {MAIN: tuple(file for _, file in sorted(main.files.items()))}
        for table, log in self.logs.items():
            if table != MAIN:
                tables[table] = self._visible(main, log.refresh())
        return Snapshot(main.version, tables, self.schemas, self.place)

    def _visible(self, main: State, state: State) -> tuple[FileRef, ...]:
        """Return the files in `state` that have visible rows. `main` is the state of `runs`."""
        files = [file for _, file in sorted(state.files.items())]
        if any(file.needs_version > main.version for file in files):
            raise AgainError("other processes appended and merged runs meanwhile")
        visible = self.visible_batches(main, {file.batch for file in files if file.batch})
        return tuple(file for file in files if file.batch is None or file.batch in visible)

    def visible_batches(self, main: State, wanted: set[str]) -> set[str]:
        named = {file.batch for file in main.files.values() if file.batch}
        if wanted - named:
            merged = [file for file in main.files.values() if file.batch is None]
            named |= self.index.batches(merged)
        return {batch for batch in wanted if batch in named}

    def known(self, partition: Mapping[str, Any] | None = None) -> set[str]:
        """Return the keys of all visible runs. With `partition`, only of runs with these values."""
        return self.patience.call(
            f"read {self.main.uri}", lambda: self._snapshot_of_main(partition)
        )

    def _snapshot_of_main(self, partition: Mapping[str, Any] | None) -> set[str]:
        main = self.main.refresh()
        files = {MAIN: tuple(main.files.values())}
        return Snapshot(main.version, files, self.schemas, self.place).known(partition)

    def dataset(self, table: str) -> ds.Dataset:
        """Return the visible rows of one table. To read several tables, use one `snapshot`."""
        return self.snapshot().dataset(table)

    def files(self, table: str) -> list[FileRef]:
        """Return the visible files of a table, for readers such as DuckDB."""
        return self.snapshot().files(table)


def _alike(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether Delta stores two Arrow types alike.

    Delta drops the units of times and the names of list items.
    """
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(found):
        return True
    if pa.types.is_list(wanted) and pa.types.is_list(found):
        return _alike(wanted.value_type, found.value_type)
    return bool(wanted == found)
