"""What the driver knows about one node in a container, over all of its incarnations."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from harness.cluster import BASE, NodeSpec
from harness.environments.docker.engine.engine import ContainerState
from harness.environments.host import exits
from harness.environments.host.cluster import RealNode
from harness.environments.host.exits import Ending
from harness.environments.host.logs import EventBus, NodeLog

SIGNALLED_CODES: Final = (128 + signal.SIGKILL, 128 + signal.SIGTERM)


def ended_by(
    state: ContainerState, *, expected: bool, on_env: bool, memory_bytes_max: int
) -> Ending:
    """Who ended a container (`harness.environments.host.exits`)."""
    oom_kills = int(state.oom_killed)
    found = exits.ended_by(state.exit_code, expected=expected, on_env=on_env, oom_kills=oom_kills)
    if found.note is None:
        return found
    note = f"{found.note} (memory limit {memory_bytes_max >> 20} MiB)"
    # Whatever the killer ended in its container was of this node.
    return Ending("host" if oom_kills else found.by, note)


class Incarnation:
    """One run of a node's program, from its start to its exit."""

    def __init__(self) -> None:
        self.pid: int | None = None  # where the engine runs on this machine
        self.ending: frozenset[int] | None = None
        self.exited = asyncio.Event()

    def end(self, codes: Iterable[int]) -> None:
        """From now on an exit with one of these codes is our doing."""
        self.ending = frozenset(codes)

    def expects(self, code: int) -> bool:
        """Whether we made it exit. A crash in the very moment of a kill has a code of its own."""
        return self.ending is not None and code in self.ending


class DockerNode(RealNode):
    """What the driver knows about one node."""

    def __init__(
        self,
        spec: NodeSpec,
        log: NodeLog,
        bus: EventBus,
        container: str,
        say: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        """`say` tells a container a line; raises `InfrastructureError`."""
        super().__init__(spec, log, bus, lambda line: say(container, line))
        self.container = container
        self.incarnation: Incarnation | None = None
        self.slowed = 1.0  # the factor by which it computes more slowly
        self.created_as = BASE  # what its container was made for

    @property
    def pid(self) -> int | None:
        """Its first process, also of an incarnation that has ended, where it is of this machine."""
        return None if self.incarnation is None else self.incarnation.pid
