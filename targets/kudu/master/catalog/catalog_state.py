"""The catalog's maps: tables by id and name, tablets by id and table, and reported versions.

A leader rebuilds its maps from the rows of the system tablet when it is elected. A follower keeps
maps for its own reads. `publish` applies a whole batch to the maps in one synchronous step. So a
rename switches both names at once; in Kudu, neither name resolves for an instant (RENAME-GAP). A
list of tables is one snapshot; in Kudu, it mixes several states (LIST-TORN). `revision` is the
index of the last operation in the maps.

Running creates and renames reserve their new names in `Catalog.reserved`. The reservations exist
only in memory and end with the leadership.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from targets.kudu.master.catalog.records import (
    Batch,
    CleanupBatch,
    Forgotten,
    Reply,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
    TServerRecord,
    decode_reply,
)
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.errors import RefusedError, invalid_argument
from targets.kudu.messages import (
    AppStatus,
    MasterErrorCode,
    PeerConfig,
    PeerHealth,
    TableIdentifier,
)


@dataclass(frozen=True, slots=True)
class LeaderView:
    """A tablet leader's report on the health of its peers.

    `opid_index` is the index of the configuration to which the report belongs.
    """

    leader_uuid: str
    opid_index: int
    health: Mapping[str, PeerHealth]


def table_not_found(identifier: TableIdentifier) -> RefusedError:
    """Return the error for an `identifier` that no live table matches."""
    named = ", ".join(
        f'{kind}: "{value}"'
        for kind, value in (
            ("table_id", identifier.table_id),
            ("table_name", identifier.table_name),
        )
        if value is not None
    )
    return RefusedError(
        MasterErrorCode.TABLE_NOT_FOUND, AppStatus.NOT_FOUND, f"the table does not exist: {named}"
    )


class Catalog:
    """The catalog's maps, either for one leadership or (`term` 0) for a master's own reads."""

    def __init__(self, term: int) -> None:
        self.term: Final = term
        self.revision = 0
        self.tables: dict[str, TableRecord] = {}
        self.tablets: dict[str, TabletRecord] = {}
        self.by_name: dict[str, str] = {}  # live tables only
        self.reserved: dict[str, str] = {}  # name -> the operation that has reserved it
        self.replies: dict[tuple[str, int], msgspec.Raw] = {}
        # tablet -> the highest schema version that one of its replicas reported
        self.reported_versions: dict[str, int] = {}
        # Tables with work for the background loop: the table is ALTERING, or a tablet does not run.
        self.unsettled: dict[str, None] = {}
        self.tservers: dict[str, TServerRecord] = {}
        # tablet -> its peers' health, as the tablet's leader last reported it to this master
        self.views: dict[str, LeaderView] = {}
        self.to_review: dict[str, None] = {}  # tablets that may have too few or too many replicas
        # A table's tablets, in the order in which their partitions start.
        self._live_tablets: dict[str, list[TabletRecord]] = {}
        self.hidden: dict[str, None] = {}  # new names that do not resolve yet (defect RENAME-GAP)
        self.heard: dict[str, dict[str, None]] | None = None
        """With the defect KUDU-1353 only: tablet id -> servers that reported the tablet.

        Without the defect, `peers` returns all peers in the stored configuration.
        """

    @classmethod
    def load(cls, rows: SystemTablet, term: int) -> Catalog:
        """Build the maps from all rows that this master has applied.

        A tablet has no reported schema version until a report reaches this leader. A tablet without
        a table is left out of the maps. Kudu exits in that case (Corruption), but in the profile
        `strict`, a master never exits on its own.
        """
        catalog = cls(term)
        catalog.revision = rows.last_index
        catalog.tables = dict(rows.tables)
        catalog.tservers = dict(rows.tservers)
        catalog.replies = rows.replies  # all leaderships share the stored answers
        for table_id, table in sorted(rows.tables.items()):
            catalog._live_tablets[table_id] = []
            if table.is_live:
                catalog.by_name[table.name] = table_id
        for tablet_id, tablet in sorted(rows.tablets.items()):
            if tablet.table_id in catalog.tables:
                catalog._put_tablet(tablet_id, tablet)
        for table_id in catalog.tables:
            catalog._settle(table_id)
        return catalog

    # --- questions ---------------------------------------------------------------------------

    def find_reply(self, client_id: str, seq_no: int) -> Reply | None:
        raw = self.replies.get((client_id, seq_no))
        return None if raw is None else decode_reply(raw)

    def find(self, identifier: TableIdentifier) -> TableRecord:
        """Return the live table that matches `identifier` (id and/or name). Raises `RefusedError`.

        As in Kudu, an identifier whose id and name belong to different tables is "not found".
        """
        if identifier.table_id is None and identifier.table_name is None:
            raise invalid_argument(
                "the table identifier has neither an id nor a name; give one of them"
            )
        table_id = identifier.table_id
        if table_id is None:
            assert identifier.table_name is not None
            table_id = self.by_name.get(identifier.table_name)
        table = None if table_id is None else self.tables.get(table_id)
        if table is None or not table.is_live:
            raise table_not_found(identifier)
        if identifier.table_name is not None and table.name != identifier.table_name:
            raise table_not_found(identifier)
        return table

    def find_running(self, identifier: TableIdentifier) -> TableRecord:
        """Return the running table that matches `identifier`. Raises `RefusedError`.

        If the table does not run, the code is TABLE_NOT_FOUND and the status SERVICE_UNAVAILABLE.
        """
        table = self.find(identifier)
        if not table.is_running:
            raise RefusedError(
                MasterErrorCode.TABLE_NOT_FOUND,
                AppStatus.SERVICE_UNAVAILABLE,
                f"the table {table.name!r} is not running: {table.state.name}",
            )
        return table

    def live_tablets(self, table_id: str) -> Sequence[TabletRecord]:
        return self._live_tablets.get(table_id, ())

    def all_run(self, table_id: str) -> bool:
        for tablet in self._live_tablets.get(table_id, ()):
            if tablet.state is not TabletState.RUNNING:
                return False
        return True

    def check_name_free(self, name: str) -> None:
        """Raise `RefusedError` if a live table has this name or an operation has reserved it."""
        if name in self.by_name:
            raise RefusedError(
                MasterErrorCode.TABLE_ALREADY_PRESENT,
                AppStatus.ALREADY_PRESENT,
                f"table {name} already exists with id {self.by_name[name]}",
            )
        if name in self.reserved:
            raise RefusedError(
                MasterErrorCode.TABLE_ALREADY_PRESENT,
                AppStatus.SERVICE_UNAVAILABLE,
                f"table {name} is already reserved by {self.reserved[name]}; try again later",
            )

    def is_fully_altered(self, table: TableRecord) -> bool:
        """Whether every live tablet has reported the table's schema version to this leader."""
        return all(
            self.reported_versions.get(tablet.id, -1) >= table.version
            for tablet in self.live_tablets(table.id)
        )

    def is_in_maintenance(self, ts_uuid: str) -> bool:
        """Whether a tablet server is in maintenance.

        Such a server gets no replicas. Its silence does not count as a failure.
        """
        record = self.tservers.get(ts_uuid)
        return record is not None and record.in_maintenance

    def peers(self, tablet: TabletRecord) -> tuple[PeerConfig, ...]:
        peers = () if tablet.consensus is None else tablet.consensus.config.peers
        if self.heard is None:
            return peers
        heard = self.heard.get(tablet.id, {})
        return tuple(peer for peer in peers if peer.uuid in heard)

    def differences(self, other: Catalog) -> list[str]:
        """Describe the differences between this catalog and `other`, one example for each map."""
        differences = []
        if self.revision != other.revision:
            differences.append(f"revision {self.revision}, not {other.revision}")
        for what, mine, theirs in (
            ("table", self.tables, other.tables),
            ("tablet", self.tablets, other.tablets),
            ("name", self.by_name, other.by_name),
            ("live tablets of table", self._live_tablets, other._live_tablets),
            ("unsettled table", self.unsettled, other.unsettled),
            ("tablet server", self.tservers, other.tservers),
        ):
            if mine != theirs:
                key = min(
                    key
                    for key in [*mine, *theirs]
                    if key not in mine or key not in theirs or mine[key] != theirs[key]
                )
                if key not in mine:
                    differences.append(f"lacks {what} {key}")
                elif key not in theirs:
                    differences.append(f"shows {what} {key}, which does not exist")
                else:
                    differences.append(f"differs in {what} {key}")
        return differences

    # --- changes -----------------------------------------------------------------------------

    def reserve(self, name: str, owner: str) -> None:
        """Reserve `name` for a running operation, until `release`."""
        assert name not in self.reserved, f"{name!r} is already reserved"
        self.reserved[name] = owner

    def release(self, name: str) -> None:
        del self.reserved[name]

    def publish(self, batch: Batch, index: int) -> None:
        assert index > self.revision, f"operation {index} after {self.revision} was published"
        self._put(batch.tables, batch.tablets)
        if isinstance(batch, CleanupBatch):
            self._forget(batch.forgotten)
        if batch.tservers:
            self.tservers |= {record.uuid: record for record in batch.tservers}
            self._review(self.views)
        self.revision = index

    def publish_unlogged(
        self, tables: Sequence[TableRecord], tablets: Sequence[TabletRecord]
    ) -> None:
        """Publish records before they are replicated (defects ORDER-CREATE and ORDER-REPLACE)."""
        self._put(tables, tablets)

    def show(self, name: str, table_id: str) -> None:
        """Make the hidden `name` resolve again, if the table still has this name."""
        del self.hidden[name]
        table = self.tables.get(table_id)
        if table is not None and table.is_live and table.name == name:
            self.by_name[name] = table_id

    def take_back_tablets(self, tablets: Sequence[TabletRecord]) -> None:
        """Remove tablets that `publish_unlogged` has added."""
        for tablet in tablets:
            self._live_tablets[tablet.table_id].remove(tablet)
            del self.tablets[tablet.id]

    def take_back_unlogged(self, table_id: str) -> None:
        """Remove a table that `publish_unlogged` has added, unless a write has replicated it."""
        table = self.tables.get(table_id)
        if table is None or table.state is not TableState.UNKNOWN:
            return
        self._unmap_name(table)
        del self.tables[table_id]
        self.unsettled.pop(table_id, None)
        for tablet in self._live_tablets.pop(table_id, []):
            del self.tablets[tablet.id]

    def note_reported_version(self, tablet_id: str, version: int) -> None:
        """Record that a replica of the tablet has reported the schema version `version`."""
        if version > self.reported_versions.get(tablet_id, -1):
            self.reported_versions[tablet_id] = version

    def _review(self, tablet_ids: Iterable[str]) -> None:
        self.to_review |= dict.fromkeys(tablet_ids)

    def _put(self, tables: Sequence[TableRecord], tablets: Sequence[TabletRecord]) -> None:
        for tablet in tablets:
            self._put_tablet(tablet.id, tablet)
        for table in tables:
            old = self.tables.get(table.id)
            if old is not None:
                self._unmap_name(old)
                if old.num_replicas != table.num_replicas:
                    self._review(tablet.id for tablet in self.live_tablets(table.id))
        for table in tables:
            self.tables[table.id] = table
            self._live_tablets.setdefault(table.id, [])
            if table.is_live and table.name not in self.hidden:
                self.by_name[table.name] = table.id
        for table_id in dict.fromkeys([t.id for t in tables] + [t.table_id for t in tablets]):
            self._settle(table_id)

    def _forget(self, rows: Forgotten) -> None:
        for tablet_id in rows.tablets:
            del self.tablets[tablet_id]
            if self.heard is not None:
                self.heard.pop(tablet_id, None)
        for table_id in rows.tables:
            del self.tables[table_id], self._live_tablets[table_id]

    def _settle(self, table_id: str) -> None:
        table = self.tables.get(table_id)
        if table is not None and (
            table.state is TableState.ALTERING
            or (table.state is TableState.RUNNING and not self.all_run(table_id))
        ):
            self.unsettled[table_id] = None
        else:
            self.unsettled.pop(table_id, None)

    def _unmap_name(self, table: TableRecord) -> None:
        if self.by_name.get(table.name) == table.id:
            del self.by_name[table.name]

    def _put_tablet(self, tablet_id: str, tablet: TabletRecord) -> None:
        old = self.tablets.get(tablet_id)
        self.tablets[tablet_id] = tablet
        siblings = self._live_tablets.setdefault(tablet.table_id, [])
        if old is not None and old.is_live:
            siblings.remove(old)
        if tablet.is_live:
            bisect.insort(siblings, tablet, key=lambda tablet: (tablet.partition.start, tablet.id))
        else:
            self.reported_versions.pop(tablet_id, None)
            self.views.pop(tablet_id, None)
            self.to_review.pop(tablet_id, None)
