"""One replica of a tablet on this server: its superblock, its state machine, its Raft group.

A replica whose data are being copied is a member of its group like any other, with a log that is
empty or old, which the leader brings up to date by entries or a snapshot. Its files are consistent
at every moment, so a crash in between costs nothing: it goes on where it was. (Kudu copies files,
has to tombstone what a crash left of them, and copies anew.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from targets.kudu import messages as m
from targets.kudu.context import NodeContext
from targets.kudu.raft.replica import (
    ConsensusService,
    IndeterminateError,
    NotAppendedError,
    NotLeaderError,
    Replica,
)
from targets.kudu.tserver._machine import AlterOutcome, AlterSchemaOp, TabletMachine
from targets.kudu.tserver._superblock import (
    COPYING,
    READY,
    TOMBSTONED,
    Superblock,
    SuperblockStore,
)

__all__ = ["Tablet"]

_Code = m.TabletErrorCode


class Tablet:
    """A replica. One whose data are gone (`TOMBSTONED`) has no running Raft group."""

    def __init__(
        self,
        node: NodeContext,
        superblock: Superblock,
        *,
        consensus: ConsensusService,
        on_dirty: Callable[[str], None],
    ) -> None:
        """A replica on a server; `on_dirty` hears its id whenever masters should know."""
        self.superblock = superblock
        self._env = node.env
        self._on_dirty = on_dirty
        self._alter_limit_s = node.flags.master_ts_rpc_timeout_ms / 1000
        self._altering = False
        self._machine = TabletMachine(
            table_name=superblock.table_name,
            schema=superblock.schema,
            schema_version=superblock.schema_version,
            on_change=self._changed,
        )
        self._replica = Replica(
            node.env,
            consensus=consensus,
            group_id=superblock.tablet_id,
            folder=SuperblockStore.raft_folder(superblock.tablet_id),
            local_uuid=node.uuid,
            initial_config=superblock.initial_config,
            flags=node.flags,
            machine=self._machine,
            snapshot_every=node.flags.tablet_snapshot_every,
            on_role_change=lambda replica: on_dirty(replica.group_id),
            copy_source=self._describe,
        )

    @property
    def tablet_id(self) -> str:
        """The tablet's id, equal on all replicas."""
        return self.superblock.tablet_id

    @property
    def has_data(self) -> bool:
        """Whether it takes part in its group: `READY`, or `COPYING` and on its way there."""
        return self.superblock.data_state in {COPYING, READY}

    @property
    def is_copied(self) -> bool:
        """Whether a replica that is `COPYING` has what its source had when the copy began."""
        return self._replica.core.commit_index >= self.superblock.copied_at

    @property
    def last_term(self) -> int:
        """The term of the last entry in the log of a tombstone."""
        return self.superblock.tombstone_last_term

    @property
    def committed_config_index(self) -> int:
        """The index that DeleteTablet's compare-and-set is about."""
        if not self.has_data:
            return self.superblock.tombstone_config_index
        return self._replica.committed_config.opid_index

    async def start(self) -> None:
        """Recover and take part in the group."""
        self._tell_version()
        await self._replica.start()

    async def stop(self) -> None:
        """Leave the group; the files stay."""
        await self._replica.stop()

    async def delete_data(self) -> None:
        """Remove the group's files; only after `stop`."""
        await self._replica.delete_data()

    async def alter_schema(self, request: m.AlterSchemaRequest) -> m.TabletError | None:
        """Replicate a schema change through the group and wait until it is applied here.

        One at a time: the caller of another one is told to come back. The rules are looked at
        before, to spare the log, and again where the operation is applied.
        """
        if not self.has_data or self._replica.state_text != "RUNNING":
            return _error(_Code.TABLET_NOT_RUNNING, f"the replica of {self.tablet_id} is not up")
        if self._replica.role != "LEADER":
            return _error(_Code.NOT_THE_LEADER, f"{self.tablet_id} is led elsewhere")
        operation = AlterSchemaOp(request.schema, request.schema_version, request.new_table_name)
        outcome = self._machine.judge(operation)
        if outcome is not AlterOutcome.APPLIED:
            return self._answer(outcome, operation)
        if self._altering:
            return _error(
                _Code.ALREADY_INPROGRESS, f"another schema change of {self.tablet_id} is under way"
            )
        self._altering = True
        try:
            _, _, outcome = await self._replica.replicate(
                TabletMachine.encode(operation), timeout_s=self._alter_limit_s
            )
        except NotLeaderError as error:
            return _error(_Code.NOT_THE_LEADER, str(error))
        except NotAppendedError as error:
            return _error(_Code.UNKNOWN_ERROR, str(error))
        except IndeterminateError as error:  # the master asks again; a change applies only once
            return _error(_Code.UNKNOWN_ERROR, str(error))
        finally:
            self._altering = False
        return self._answer(outcome, operation)

    def _answer(self, outcome: AlterOutcome, operation: AlterSchemaOp) -> m.TabletError | None:
        mine, asked = self._machine.schema_version, operation.schema_version
        if outcome is AlterOutcome.OLDER:
            return _error(
                _Code.TABLET_HAS_A_NEWER_SCHEMA, f"the tablet has version {mine}, asked: {asked}"
            )
        if outcome is AlterOutcome.MISMATCHED:
            return _error(
                _Code.MISMATCHED_SCHEMA, f"the tablet has another schema of version {asked}"
            )
        return None

    def _changed(self) -> None:
        self._tell_version()
        self._on_dirty(self.tablet_id)

    def _tell_version(self) -> None:
        """Masters may call an alter done once some replica of each tablet has its version."""
        version = self._machine.schema_version
        self._env.event("checkpoint", group=self.tablet_id, version=version)

    def _describe(self) -> bytes:
        """What another server needs for an empty replica of this tablet."""
        config = self._replica.committed_config
        superblock = msgspec.structs.replace(
            self.superblock,
            initial_config=config,
            data_state=COPYING,
            copied_at=config.opid_index,
            tombstone_config_index=-1,
            tombstone_last_term=0,
        )
        return msgspec.json.encode(superblock)

    def tombstone(self) -> Superblock:
        """The superblock that it leaves as a tombstone."""
        core = self._replica.core
        return msgspec.structs.replace(
            self.superblock,
            data_state=TOMBSTONED,
            tombstone_config_index=self.committed_config_index,
            tombstone_last_term=core.log.last.term,
        )

    def report(self) -> m.ReportedTablet:
        """The replica as masters hear of it."""
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
            committed_config=replica.committed_config,
            schema_version=machine.schema_version,
            has_pending_config=replica.pending_config is not None,
            peer_health=replica.peer_health(),
        )

    def dump(self) -> dict[str, Any]:
        """Everything, as plain JSON data."""
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
            "raft": self._replica.dump() if self.has_data else None,
        }

    def _config(self) -> dict[str, Any]:
        config = self._replica.committed_config
        peers = [
            {"uuid": peer.uuid, "address": peer.address, "member_type": peer.member_type}
            for peer in config.peers
        ]
        return {"opid_index": config.opid_index, "peers": peers}


def _error(code: m.TabletErrorCode, message: str) -> m.TabletError:
    return m.TabletError(code, message)
