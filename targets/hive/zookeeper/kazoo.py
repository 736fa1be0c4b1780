"""A session with a real ensemble over kazoo, which implements `targets.hive.zookeeper.protocol`.

kazoo's own threads find a server that answers, and open a new session if the old one has expired. A
call waits for a session and then for its answer, until its timeout. After the timeout, the call's
write may have taken effect, or may still do so. Simulations never import this module.
"""

from __future__ import annotations

import asyncio
import logging  # determinism: not simulated
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.env import Address, Env
from harness.errors import UsageError
from targets.hive.zookeeper.protocol import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    Znode,
    check_path,
    error_of,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_FENCE: Final = "/harness-fence"
_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
_ANY_VERSION: Final = -1
_quiet: Final = logging.getLogger("kazoo")
_quiet.setLevel(logging.CRITICAL)


def require_kazoo() -> None:
    """Raise `UsageError` if kazoo is not installed."""
    try:
        import kazoo.client  # noqa: F401 - only tests the import
    except ImportError as error:
        raise UsageError(
            f"an ensemble of ZooKeeper needs kazoo, which cannot be imported: {error}; "
            "install catalog-harness[hive], or use --zookeeper node"
        ) from error


class KazooZooKeeper:
    """A session with a real ensemble (`targets.hive.zookeeper.protocol.ZooKeeper`) over kazoo."""

    def __init__(
        self,
        env: Env,
        servers: Sequence[Address],
        *,
        answer_s: float = 5.0,
        session_s: float = 3.0,
    ) -> None:
        """A call fails after `answer_s`, which includes the time to find a server.

        The client leaves a server that is silent for two thirds of `session_s`.
        """
        self._env = env
        self._servers = servers
        self._answer_s = answer_s
        self._session_s = session_s
        self._client: KazooClient | None = None
        self._connected = asyncio.Event()

    async def create(self, path: str, data: bytes, *, sequential: bool = False) -> str:
        return str(await self._do("create", path, data, sequence=sequential))

    async def get(self, path: str) -> Znode:
        data, stat = await self._do("get", path)
        return Znode(data, stat.version)

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        stat = await self._do("set", path, data, _ANY_VERSION if version is None else version)
        return int(stat.version)

    async def delete(self, path: str, version: int | None = None) -> None:
        await self._do("delete", path, _ANY_VERSION if version is None else version)

    async def children(self, path: str) -> Sequence[str]:
        return sorted(await self._do("get_children", path))

    async def fence(self) -> None:
        """Write to a znode, and wait until this session's server has the write.

        ZooKeeper's own `sync` is not enough: it asks only the leader, which may already have been
        replaced (ZOOKEEPER-2136).
        """
        try:
            await self.set(_FENCE, b"")
        except NoNodeError:
            try:
                await self.create(_FENCE, b"")
            except NodeExistsError:
                await self.set(_FENCE, b"")

    def close(self) -> None:
        """Close the session without waiting for its end."""
        client, self._client = self._client, None
        if client is not None:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, _stop, client)  # determinism: not simulated

    # --- calls -------------------------------------------------------------------------------

    async def _do(self, name: str, path: str, *args: Any, **options: Any) -> Any:
        check_path(path, is_prefix=bool(options.get("sequence")))
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._answer(name, path, *args, **options)
        except TimeoutError as error:
            raise ConnectionLossError(f"no answer within {self._answer_s:g} s") from error

    async def _answer(self, name: str, path: str, *args: Any, **options: Any) -> Any:
        from kazoo.exceptions import KazooException

        client, loop, done = self._started(), asyncio.get_running_loop(), asyncio.Event()
        await self._connected.wait()
        asked = getattr(client, f"{name}_async")(path, *args, **options)
        asked.rawlink(lambda _: loop.call_soon_threadsafe(done.set))
        await done.wait()
        try:
            return asked.get(block=False)
        except KazooException as error:
            message = f"KeeperErrorCode = {type(error).__name__} for {path}"
            raise error_of(getattr(error, "code", None), message) from error

    def _started(self) -> KazooClient:
        if self._client is None:
            from kazoo.client import KazooClient

            ends = [self._env.endpoint(server) for server in self._servers]
            self._client = KazooClient(
                hosts=",".join(f"{host}:{port}" for host, port in ends),
                timeout=self._session_s,
                connection_retry=_RETRY,
                logger=_quiet,
            )
            loop = asyncio.get_running_loop()
            self._client.add_listener(
                lambda state: loop.call_soon_threadsafe(self._on_state, str(state))
            )
            self._client.start_async()
        return self._client

    def _on_state(self, state: str) -> None:
        if state == "CONNECTED":
            self._connected.set()
        else:
            self._connected.clear()


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()
