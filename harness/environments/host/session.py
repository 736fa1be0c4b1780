"""Runs the driver's `main` in real environments: event loop, signals and teardown.

The first Ctrl-C (or SIGTERM) only sets `interrupted`: the run stops its workload, heals, and checks
the history until then. The second Ctrl-C cancels `main`. The result of `main` is kept even if the
teardown fails, since a container that does not stop must not cost the verdict.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from harness.cluster import CLIENT, Controls
from harness.environments.host.env import RealClientEnv
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.starvation import watch_processors
from harness.environments.host.watch import Interference, watch
from harness.environments.warden import Warden
from harness.plugins import DeploymentPlan, Session

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_log = logging.getLogger(__name__)


class _DeployedCluster(Controls, Protocol):
    """`Controls` that also report stopped FUSE disks, as `RealCluster` does."""

    def stopped_disks(self) -> Mapping[str, Interference]: ...


@dataclass(frozen=True, slots=True)
class RealSession(Session):
    """The driver's access to a running deployment (see `harness.plugins.Session`)."""

    cluster: Controls
    env: RealClientEnv
    interrupted: asyncio.Event


class RealRun:
    """One deployment of a plan, up to its removal; infrastructure failures end it early."""

    def __init__(self, plan: DeploymentPlan) -> None:
        self._plan = plan
        self._bus = EventBus(self._failed)
        self._env: RealClientEnv | None = None
        self._main: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None
        self._ending = False

    def _log_path(self, name: str) -> Path | None:
        folder = self._plan.folder
        return None if folder is None else folder / "logs" / f"{name}.log"

    def _node_log(self, node: str) -> NodeLog:
        foreign = any(spec.name == node and spec.entry is None for spec in self._plan.nodes)
        return NodeLog(node, self._bus, self._log_path(node), foreign=foreign)

    def _start_warden(self) -> Warden:
        log = self._log_path("warden")
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        return Warden.start(self._plan.run_id, log=log)

    async def _drive(
        self,
        main: Callable[[Session], Coroutine[Any, Any, T]],
        cluster: _DeployedCluster,
        interrupted: asyncio.Event,
        *,
        data: Path,
        connect: Mapping[str, Mapping[str, tuple[str, int]]],
        look: Callable[[], Awaitable[Mapping[str, Interference | None]]],
        look_interval_s: float,
        pids: Callable[[], Mapping[str, int]],
    ) -> T:
        """Run `main` on a deployed cluster; returns the result of `main`.

        `connect` maps each client to the addresses of nodes. `data` is the folder of the clients.
        While `main` runs, the harness polls `look` for interference, and watches whether the
        processes in `pids` lack CPU time.
        """

        async def look_at_all() -> Mapping[str, Interference | None]:
            looks = {node: each for node, each in (await look()).items() if each is not None}
            return {**cluster.stopped_disks(), **looks}

        env = self._env = RealClientEnv(
            seed=self._plan.seed,
            data=data,
            connect=connect,
            on_event=lambda kind, fields: self._bus.hear(CLIENT, kind, fields),
            on_panic=self._panicked,
        )
        env.net.aliases = cluster.aliases
        env.spawn(watch(look_at_all, self._bus, interval_s=look_interval_s), name="watch")
        env.spawn(watch_processors(pids, self._bus), name="watch-processors")
        session = RealSession(cluster, env, interrupted)
        task: asyncio.Task[T] = asyncio.ensure_future(main(session))
        self._main = task
        if self._failure is not None:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            task.cancel()
            await asyncio.wait([task])
            raise

    def _panicked(self, task: str, error: BaseException) -> None:
        error.add_note(f"in the task {task!r} of a client")
        self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if self._failure is None and not self._ending:
            self._failure = error
            if self._main is not None:
                self._main.cancel()


async def guarded_main(main: Coroutine[Any, Any, T], teardown: Callable[[], Awaitable[None]]) -> T:
    """Run `main` and then always `teardown`. A failure of `teardown` is only logged."""
    try:
        return await main
    finally:
        try:
            await teardown()
        except Exception as error:  # noqa: BLE001 - recorded; it must not destroy the result
            _log.warning("the teardown failed, run `harness clean`: %r", error)


def run_interruptible(body: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run `body(interrupted)` on a new event loop; returns the result of `body`.

    The first signal sets `interrupted`. The second cancels `body`; when `body` has ended,
    `KeyboardInterrupt` is raised. Outside of the main thread, signals have no effect, because
    Python allows handlers only there.
    """
    aborted = False

    async def run() -> T:
        nonlocal aborted
        interrupted = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def on_signal() -> None:
            nonlocal aborted
            if not interrupted.is_set():
                interrupted.set()
            elif not aborted:
                aborted = True
                task.cancel()

        handles_signals = threading.current_thread() is threading.main_thread()
        previous = {number: signal.getsignal(number) for number in _SIGNALS}
        if handles_signals:
            for number in _SIGNALS:
                loop.add_signal_handler(number, on_signal)
        try:
            return await body(interrupted)
        finally:
            if handles_signals:
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                    signal.signal(number, previous[number])

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if aborted:
            raise KeyboardInterrupt from None
        raise
