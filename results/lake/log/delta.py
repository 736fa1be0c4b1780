"""The Delta log of one table. Only this module calls `deltalake`.

An *exact* commit succeeds only if no other commit came after the state that was last read.
Otherwise it raises `ConflictError` and changes nothing. A *blind* commit may be rebased over
commits of other writers. Only one writer can create the log's next file, because disks and object
stores offer `put if absent`.

A log also has **fences**: ids of batches and compactions that must never be committed. Fences are
stored as Delta application transactions, and kept as long as the table exists.

Use a log only in one thread of the process that opened it, because the runtime of `deltalake` does
not survive a fork.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from results.lake.log.files import KEY, LOG_FOLDER, PARTITION, FileRef, Partition, partition_values
from results.lake.log.location import Place
from results.lake.log.storage_errors import ConflictError, require, troubles

CHECKPOINT_EVERY: Final = "50"
BLIND_RETRIES: Final = 15
FENCED: Final = 1


@dataclass(frozen=True, slots=True)
class Addition:
    """An uploaded file that waits for its commit."""

    name: str
    size_bytes: int
    rows: int
    statistics: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class State:
    """The files of a table, by name, at one version."""

    version: int
    files: Mapping[str, FileRef]


class Log:
    """The Delta log of one table."""

    def __init__(self, place: Place, table: str) -> None:
        self.place = place
        self.table = table
        self.uri = place.uri_of(table)
        self._delta: Any = None
        self._state: State | None = None

    def exists(self) -> bool:
        """Open the Delta table if it exists; return whether it exists."""
        deltalake = require("deltalake")
        with troubles(self.uri):
            try:
                self._delta = deltalake.DeltaTable(self.uri, storage_options=self.place.options)
            except deltalake.exceptions.TableNotFoundError:
                return False
        return True

    def create(self, schema: pa.Schema, settings: Mapping[str, str]) -> None:
        """Create an empty table, unless it exists.

        Delta must not retry the commit: a retry could add our settings to a table that another
        writer created meanwhile.
        """
        deltalake = require("deltalake")
        with troubles(self.uri):
            deltalake.DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=list(PARTITION),
                configuration={**settings, "delta.checkpointInterval": CHECKPOINT_EVERY},
                storage_options=self.place.options,
                raise_if_key_not_exists=False,
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
            )

    def schema(self) -> pa.Schema:
        """Return the columns of the table, as of the state that was last read."""
        return pa.schema(self._delta.schema().to_arrow())

    def settings(self) -> Mapping[str, str]:
        settings: Mapping[str, str] = self._delta.metadata().configuration
        return settings

    def refresh(self) -> State:
        with troubles(self.uri):
            self._delta.update_incremental()
            version = self._delta.version()
            if self._state is None or self._state.version != version:
                self._state = State(version, self._files())
        return self._state

    def _files(self) -> Mapping[str, FileRef]:
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return {row["path"]: self._file(row) for row in rows}

    def _file(self, row: Mapping[str, Any]) -> FileRef:
        target, label, day = (row.get(f"partition.{name}") for name in PARTITION)
        return FileRef(
            table=self.table,
            name=row["path"],
            uri=self.place.uri_of(self.table, row["path"]),
            size_bytes=row["size_bytes"],
            rows=row["num_records"],
            partition=(target, label, day),
            first_run=row[f"min.{KEY}"],
            last_run=row[f"max.{KEY}"],
            modified_ms=row["modification_time"],
        )

    def fenced(self, name: str) -> bool:
        """Whether the id of a batch or compaction is fenced, as of the state that was last read."""
        with troubles(self.uri):
            return self._delta.transaction_version(name) is not None

    def commit(
        self,
        schema: pa.Schema,
        *,
        add: Sequence[Addition] = (),
        remove: Sequence[FileRef] = (),
        fence: Sequence[str] = (),
        exact: bool,
        rearranged: bool = False,
    ) -> None:
        """Commit one version. `rearranged` means that rows only move, unchanged, to other files.

        Raises `ConflictError` if this attempt committed nothing (an earlier attempt may have
        succeeded). Raises `AgainError` if it is unknown whether this attempt succeeded.
        """
        deltalake = require("deltalake")
        actions = require("deltalake.transaction")
        now_ms = self.place.now_ms()
        added = [
            actions.AddAction(
                path=item.name,
                size=item.size_bytes,
                partition_values=partition_values(item.partition),
                modification_time=now_ms,
                data_change=not rearranged,
                stats=item.statistics,
            )
            for item in add
        ]
        removed = [
            actions.RemoveAction(
                path=item.name,
                data_change=not rearranged,
                deletion_timestamp=now_ms,
                size=item.size_bytes,
                partition_values=partition_values(item.partition),
            )
            for item in remove
        ]
        with troubles(self.uri):
            try:
                self._delta.create_write_transaction(
                    [*added, *removed],
                    "append",
                    schema,
                    partition_by=list(PARTITION),
                    commit_properties=deltalake.CommitProperties(
                        max_commit_retries=0 if exact else BLIND_RETRIES,
                        app_transactions=[deltalake.Transaction(name, FENCED) for name in fence],
                    ),
                )
            except deltalake.exceptions.CommitFailedError as error:
                raise ConflictError(f"{self.table}: another writer committed first") from error

    def obsolete(self, hours: int, *, untracked: bool) -> list[str]:
        """Return the names of files that were removed from the table more than `hours` ago.

        With `untracked`, also return files of that age that the log never contained.
        """
        with troubles(self.uri):
            stale = self._delta.vacuum(
                retention_hours=hours,
                dry_run=True,
                enforce_retention_duration=False,
                full=untracked,
            )
        return sorted(path.rpartition("/")[2] for path in stale if LOG_FOLDER not in path)
