"""How a real environment runs `main`: its loop, its signals, its teardown.

The first Ctrl-C (or SIGTERM) only sets `interrupted`: the run stops its workload, heals, and checks
what there is. The second cancels `main`. Whatever `main` returned is kept even if the teardown
then fails, since a verdict must not die with a container that would not stop.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from harness.cluster import Cluster
from harness.environments.real.env import RealClientEnv
from harness.errors import UsageError

__all__ = ["RealSession", "guarded_main", "refuse_knobs", "run_interruptible"]

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_log = logging.getLogger(__name__)


class RealSession:
    """A deployment while it lasts."""

    def __init__(self, cluster: Cluster, env: RealClientEnv, interrupted: asyncio.Event) -> None:
        self._cluster = cluster
        self._env = env
        self._interrupted = interrupted

    @property
    def cluster(self) -> Cluster:
        """The nemesis's door."""
        return self._cluster

    @property
    def env(self) -> RealClientEnv:
        """The clients' door."""
        return self._env

    @property
    def interrupted(self) -> asyncio.Event:
        """Set by the first Ctrl-C."""
        return self._interrupted


def refuse_knobs(environment: str, knobs: Mapping[str, Any]) -> None:
    """Raise `UsageError` for any knob: they turn the simulated world, which this is not."""
    if knobs:
        raise UsageError(
            f"the knobs {', '.join(sorted(knobs))} turn the simulation only; drop them from the "
            f"case, or use --env sim instead of --env {environment}"
        )


async def guarded_main(main: Coroutine[Any, Any, T], teardown: Callable[[], Awaitable[None]]) -> T:
    """Run `main`, then `teardown` whatever happened; a failing teardown is only a warning."""
    try:
        return await main
    finally:
        try:
            await teardown()
        except Exception as error:  # noqa: BLE001 - recorded; it must not destroy the result
            _log.warning("the teardown failed, run `harness clean`: %r", error)


def run_interruptible(body: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run `body(interrupted)` on a new loop.

    Raises `KeyboardInterrupt` after a second signal, once the cancelled body has ended. Signals
    are left alone outside the main thread, where Python cannot handle them.
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
