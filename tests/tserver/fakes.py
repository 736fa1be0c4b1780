"""A Raft replica that commits alone and at once, and the `Env` of a tablet server."""

from types import SimpleNamespace
from typing import Any

from targets.kudu import messages as m
from targets.kudu.consensus.messages import OpId
from tests.support.env import FakeDisk, FakeEnv


def server_env(disk: FakeDisk | None = None) -> FakeEnv:
    return FakeEnv("t1", disk=disk, seed=5)


class FakeReplica:
    """A replica that leads by default; `raises` scripts the next `replicate`."""

    def __init__(
        self, env, *, consensus, group_id, folder, local_uuid, initial_config, flags, machine,
        on_role_change, snapshot_every, copy_source, files,
    ):  # fmt: skip
        del snapshot_every, files
        self._env = env
        self._file = f"{folder}/meta"
        self._machine = machine
        self._on_role_change = on_role_change
        self.group_id = group_id
        self.role, self.term, self.leader_uuid = "LEADER", 1, local_uuid
        self.committed_config = initial_config
        self.pending_config = None
        self.copy_source = copy_source
        self.commit_index, self.last_term = 0, 1
        self.health: dict[str, m.PeerHealth] = {}
        self.state_text = "NOT_INITIALIZED"
        self.raises: Exception | None = None
        self.log: list[bytes] = []

    async def start(self) -> None:
        assert self.state_text == "NOT_INITIALIZED"
        if self._file not in self._env.disk.files:
            await self._env.disk.replace(self._file, b"")
        self.state_text = "RUNNING"
        self._on_role_change(self)

    async def stop(self) -> None:
        self.state_text = "STOPPED"

    async def keep_last_logged(self) -> None:
        assert self.state_text == "STOPPED"

    async def delete_data(self, *, keep_votes: bool = False) -> None:
        assert self.state_text in {"NOT_INITIALIZED", "STOPPED"}
        if not keep_votes:
            await self._env.disk.remove(self._file)

    @property
    def core(self) -> Any:
        """Return the part of the core that the replica's owner reads."""
        last = OpId(self.last_term, self.commit_index)
        return SimpleNamespace(commit_index=self.commit_index, log=SimpleNamespace(last=last))

    def peer_health(self) -> dict[str, m.PeerHealth]:
        return self.health

    async def replicate(self, payload: bytes, *, timeout_s: float | None = None):
        if self.raises is not None:
            raise self.raises
        self.log.append(payload)
        return len(self.log), self.term, self._machine.apply(len(self.log), self.term, payload)

    def status(self) -> dict[str, Any]:
        return {"term": self.term}

    dump = status


UUID = "a" * 32


def schema(*names: str) -> m.Schema:
    columns = tuple(m.Column(1 + n, name) for n, name in enumerate(names))
    return m.Schema((m.Column(0, "key", is_key=True), *columns))


def create(tablet_id: str = "x", **changes: Any) -> m.CreateTabletRequest:
    fields: dict[str, Any] = {
        "dest_uuid": UUID,
        "table_id": "table",
        "table_name": "t",
        "tablet_id": tablet_id,
        "partition": m.Partition(b"", b"\x80"),
        "schema": schema("a"),
        "schema_version": 3,
        "config": m.RaftConfig(-1, (m.PeerConfig(UUID, "t1:7050"),)),
    }
    return m.CreateTabletRequest(**(fields | changes))


def delete(tablet_id: str = "x", **changes: Any) -> m.DeleteTabletRequest:
    fields: dict[str, Any] = {
        "dest_uuid": UUID,
        "tablet_id": tablet_id,
        "delete_type": "DELETED",
        "reason": "test",
    }
    return m.DeleteTabletRequest(**(fields | changes))


def alter(version: int, *columns: str, **changes: Any) -> m.AlterSchemaRequest:
    fields: dict[str, Any] = {
        "dest_uuid": UUID,
        "tablet_id": "x",
        "schema": schema(*columns),
        "schema_version": version,
    }
    return m.AlterSchemaRequest(**(fields | changes))
