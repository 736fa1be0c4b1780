"""One replica of a tablet on this server.

`Tablet` combines the superblock, the state machine, the Raft group, and the parts that write and
read rows.

A replica in state `COPYING` is a member of its group like any other. Its log is empty at first, and
the leader fills it with entries or a snapshot. The replica's files are always consistent, so the
copy continues after a crash. (Kudu copies files. If a crash interrupts a copy, Kudu tombstones the
copy and starts again.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from targets.kudu import messages as m
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.consensus.errors import NotLeaderError, RaftError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.consensus.tombstoned_voting import TombstonedVoter
from targets.kudu.context import NodeContext
from targets.kudu.hybrid_clock import ClockError, HybridClock
from targets.kudu.tserver.errors import TabletRefusedError
from targets.kudu.tserver.rowset import RowFiles
from targets.kudu.tserver.scanners import Scans
from targets.kudu.tserver.tablet import AlterOutcome, AlterSchemaOp, TabletMachine
from targets.kudu.tserver.tablet_metadata import COPYING, READY, Superblock, SuperblockStore
from targets.kudu.tserver.time_manager import SafeTime
from targets.kudu.tserver.write_op import Writes

_Code = m.TabletErrorCode
_WITH_DATA: Final = frozenset({COPYING, READY})


class Tablet:
    """A replica of a tablet.

    A replica without data (`TOMBSTONED`) only votes. Callers must check `is_serving` before they
    use `writes` or `scans`.
    """

    def __init__(
        self,
        node: NodeContext,
        superblock: Superblock,
        *,
        consensus: ConsensusService,
        clock: HybridClock,
        on_dirty: Callable[[str], None],
    ) -> None:
        """Open a replica; `on_dirty` is called with its id when masters need a new report.

        `clock` is the server's clock.
        """
        self.superblock = superblock
        self._env = node.env
        self._on_dirty = on_dirty
        self._alter_limit_s = node.flags.master_ts_rpc_timeout_ms / 1000
        self._safe_time_limit_s = node.flags.safe_time_max_lag_ms / 1000
        self._altering = False
        folder = SuperblockStore.raft_folder(superblock.tablet_id)
        self._votes_dead = node.flags.raft_enable_tombstoned_voting
        self._voter = TombstonedVoter(
            node.env,
            consensus=consensus,
            group_id=superblock.tablet_id,
            folder=folder,
            local_uuid=node.uuid,
        )
        self._machine = TabletMachine(
            table_name=superblock.table_name,
            schema=superblock.schema,
            schema_version=superblock.schema_version,
            flags=node.flags,
            on_change=self._changed,
            on_timestamp=self._time_passed,
        )
        self._files = RowFiles(node.env.disk, folder, self._machine.digest)
        self._replica = Replica(
            node.env,
            consensus=consensus,
            group_id=superblock.tablet_id,
            folder=folder,
            local_uuid=node.uuid,
            initial_config=superblock.initial_config,
            flags=node.flags,
            machine=self._machine,
            snapshot_every=node.flags.tablet_snapshot_every,
            on_role_change=lambda replica: on_dirty(replica.group_id),
            copy_source=lambda: msgspec.json.encode(self.superblock),
            files=self._files,
        )
        self._clock = clock
        self._safe_time = SafeTime(node, replica=self._replica, machine=self._machine, clock=clock)
        self.writes = Writes(
            replica=self._replica,
            machine=self._machine,
            clock=clock,
            flags=node.flags,
            partition=superblock.partition,
            partition_schema=superblock.partition_schema,
        )
        self.scans = Scans(
            node,
            replica=self._replica,
            machine=self._machine,
            clock=clock,
            safe_time=self._safe_time,
        )

    @property
    def tablet_id(self) -> str:
        return self.superblock.tablet_id

    @property
    def has_data(self) -> bool:
        """Whether the replica has data and takes part in its group: `READY`, or still `COPYING`."""
        return self.superblock.data_state in _WITH_DATA

    @property
    def is_copied(self) -> bool:
        """Whether a `COPYING` replica has committed the configuration with which it began."""
        return self._replica.core.commit_index >= self.superblock.copied_at

    @property
    def is_serving(self) -> bool:
        """Whether the replica accepts writes and reads."""
        ready = self.superblock.data_state == READY
        return ready and self._replica.state_text == "RUNNING"

    @property
    def committed_config_index(self) -> int:
        """The index of the committed configuration, for the compare-and-set of DeleteTablet."""
        if not self.has_data:
            return self.superblock.tombstone_config_index
        return self._known_config.opid_index

    @property
    def _known_config(self) -> m.RaftConfig:
        """The newest configuration that this replica knows to be committed.

        The vote state of an earlier tombstone may have an older configuration than the one with
        which the copy began. A DeleteTablet based on the older configuration must not delete the
        copy.
        """
        current, first = self._replica.committed_config, self.superblock.initial_config
        return first if first.opid_index > current.opid_index else current

    async def start(self) -> None:
        """Recover the replica and join its group; a tombstone removes leftover files and votes."""
        if not self.has_data:
            await self._replica.delete_data(keep_votes=True)
            await self._vote_on()
            return
        self._tell_version()
        await self._replica.start()

    async def stop(self) -> None:
        """Stop taking part in the group; the replica's files remain."""
        await self._voter.stop()
        await self._replica.stop()

    async def bury(self, tombstone: Superblock, store: SuperblockStore) -> None:
        """Turn this replica into a tombstone: remove all its data except the vote state.

        If a crash interrupts the removal, the next `start` finishes it.
        """
        await self._replica.stop()
        await self._replica.keep_last_logged()
        await store.write(tombstone)
        self.superblock = tombstone
        self._env.point("tombstoned", tablet=self.tablet_id)
        await self._replica.delete_data(keep_votes=True)
        await self._vote_on()

    async def _vote_on(self) -> None:
        if self._votes_dead:
            await self._voter.start()

    async def delete_data(self) -> None:
        """Remove the group's files; call this only after `stop`."""
        await self._replica.delete_data()

    async def alter_schema(self, request: m.AlterSchemaRequest) -> None:
        """Replicate a schema change through the group, and wait until this replica has applied it.

        Only one schema change runs at a time; a second caller must retry later. The version is
        checked twice: on arrival, to save a log entry, and when the change is applied. Raises
        `TabletRefusedError`.
        """
        if not self.is_serving:
            raise TabletRefusedError(
                _Code.TABLET_NOT_RUNNING, f"the replica of {self.tablet_id} is not running"
            )
        self._check_leads()
        operation = AlterSchemaOp(request.schema, request.schema_version, request.new_table_name)
        outcome = self._machine.judge(operation)
        if outcome is not AlterOutcome.APPLIED:
            self._check_altered(outcome, operation)
            return
        if self._altering:
            raise TabletRefusedError(
                _Code.ALREADY_INPROGRESS, f"another schema change of {self.tablet_id} is running"
            )
        self._altering = True
        try:
            _, _, outcome = await self._replica.replicate(
                TabletMachine.encode(operation), timeout_s=self._alter_limit_s
            )
        except NotLeaderError as error:
            raise TabletRefusedError(_Code.NOT_THE_LEADER, str(error)) from error
        # the master retries, and a repeated change has no further effect
        except RaftError as error:
            raise TabletRefusedError(_Code.UNKNOWN_ERROR, str(error)) from error
        finally:
            self._altering = False
        self._check_altered(outcome, operation)

    def _check_leads(self) -> None:
        if self._replica.role != "LEADER":
            raise TabletRefusedError(_Code.NOT_THE_LEADER, f"not the leader of {self.tablet_id}")

    def _check_altered(self, outcome: AlterOutcome, operation: AlterSchemaOp) -> None:
        current, asked = self._machine.schema_version, operation.schema_version
        if outcome is AlterOutcome.OLDER:
            raise TabletRefusedError(
                _Code.TABLET_HAS_A_NEWER_SCHEMA, f"the tablet has version {current}, above {asked}"
            )
        if outcome is AlterOutcome.MISMATCHED:
            raise TabletRefusedError(
                _Code.MISMATCHED_SCHEMA, f"the tablet has another schema of version {asked}"
            )

    async def advance_safe_time(
        self, request: m.AdvanceSafeTimeRequest
    ) -> m.AdvanceSafeTimeResponse:
        """Advance this leader's log to a timestamp, so that a follower can read at it."""
        self._check_leads()
        try:
            # Refuse a timestamp that is too far ahead: one wrong clock must not advance other
            # clocks.
            self._clock.update(request.timestamp)
        except ClockError as error:
            raise TabletRefusedError(_Code.CLOCK_TOO_FAR_AHEAD, str(error)) from error
        if not await self._safe_time.advance(request.timestamp, self._safe_time_limit_s):
            raise TabletRefusedError(_Code.TIMED_OUT, f"the log is below {request.timestamp}")
        return m.AdvanceSafeTimeResponse()

    def _time_passed(self, timestamp: int) -> None:
        self._clock.observe(timestamp)
        self._safe_time.reached(timestamp)

    def _changed(self) -> None:
        self._tell_version()
        self._on_dirty(self.tablet_id)

    def _tell_version(self) -> None:
        """Announce the applied schema version. Checkers compare it with answers to clients."""
        version = self._machine.schema_version
        self._env.event("checkpoint", group=self.tablet_id, version=version)

    def report(self) -> m.ReportedTablet:
        replica, machine = self._replica, self._machine
        if not self.has_data:
            return m.ReportedTablet(
                tablet_id=self.tablet_id,
                state="STOPPED",
                data_state=self.superblock.data_state,
                term=0,
                leader_uuid=None,
                committed_config=None,
                schema_version=machine.schema_version,
            )
        return m.ReportedTablet(
            tablet_id=self.tablet_id,
            state=replica.state_text,
            data_state=self.superblock.data_state,
            term=replica.term,
            leader_uuid=replica.leader_uuid,
            committed_config=self._known_config,
            schema_version=machine.schema_version,
            has_pending_config=replica.pending_config is not None,
            peer_health=replica.peer_health(),
        )

    def hosted(self) -> m.HostedTablet:
        superblock, replica, machine = self.superblock, self._replica, self._machine
        return m.HostedTablet(
            tablet_id=self.tablet_id,
            table_id=superblock.table_id,
            table_name=machine.table_name,
            state=replica.state_text if self.has_data else "STOPPED",
            data_state=superblock.data_state,
            role=replica.role,
            term=replica.term if self.has_data else 0,
            leader_uuid=replica.leader_uuid if self.has_data else None,
            partition=superblock.partition,
            schema_version=machine.schema_version,
            rows=machine.rows.live_rows,
            columns=machine.schema.columns,
        )

    def _rows(self) -> dict[str, Any]:
        machine = self._machine
        return {
            "applied_index": machine.applied_index,
            "live_rows": machine.rows.live_rows,
            "last_timestamp": machine.last_timestamp,
            "counters": {
                "row bytes in memory": machine.rows.version_bytes,
                "history bytes": machine.rows.history_bytes,
                "remembered results": machine.results.count,
                "waiting writes": self.writes.waiting_count,
                "waiting reads": self._safe_time.waiting_count,
                **self._files.counters,
            },
        }

    def dump(self) -> dict[str, Any]:
        """Return `status`, the digests of the log and the digest of the rows.

        The digests of replicas with equal `applied_index` are equal.
        """
        status = self.status()
        if self.has_data:
            status["rows"]["digest"] = self._machine.digest().hex()[:32]
            status["raft"] = self._replica.dump()
        return status

    def status(self) -> dict[str, Any]:
        """Return the replica's state as JSON. The cost does not depend on the number of rows."""
        superblock, machine = self.superblock, self._machine
        return {
            "tablet_id": self.tablet_id,
            "table_id": superblock.table_id,
            "state": self._replica.state_text if self.has_data else "STOPPED",
            "data_state": superblock.data_state,
            "schema_version": machine.schema_version,
            "table_name": machine.table_name,
            "columns": [[column.id, column.name] for column in machine.schema.columns],
            "partition": {
                "start": superblock.partition.start.hex(),
                "end": superblock.partition.end.hex(),
            },
            "committed_config": self._config() if self.has_data else None,
            "rows": self._rows() if self.has_data else None,
            "raft": self._replica.status() if self.has_data else None,
        }

    def _config(self) -> dict[str, Any]:
        config = self._replica.committed_config
        peers = [
            {"uuid": peer.uuid, "address": peer.address, "member_type": peer.member_type}
            for peer in config.peers
        ]
        return {"opid_index": config.opid_index, "peers": peers}
