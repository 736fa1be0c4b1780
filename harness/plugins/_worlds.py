"""Where a target is deployed: an environment, its sessions, and what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from harness.cluster import CLIENT, Capability, Controls, Fidelity, NodeSpec
from harness.env import ClientEnv

T = TypeVar("T")


class DeploymentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment is asked to deploy."""

    run_id: str
    nodes: tuple[NodeSpec, ...]
    seed: int
    knobs: dict[str, Any]
    folder: Path | None  # for node logs; None keeps nothing
    link_proxy: str | None = None  # URL of a Toxiproxy server to use instead of our own
    clients: int = 1  # how many there are at once
    ends: tuple[str, ...] = (CLIENT,)  # of links, for them; see `Cluster.clients`
    clocks: frozenset[str] = frozenset()  # foreign programs whose clocks the run may make wrong
    data: Path | None = None  # a folder a node, with which it starts (`Environment`)


class Session(Protocol):
    """A deployment while it lasts, on its running event loop."""

    @property
    def cluster(self) -> Controls:
        """The environment's side of the nemesis's door."""
        ...

    @property
    def env(self) -> ClientEnv:
        """The clients' door; also the driver's clock and randomness."""
        ...

    @property
    def interrupted(self) -> asyncio.Event:
        """Set by the first Ctrl-C; the second cancels the run."""
        ...


class Environment(Protocol):
    """A world that deploys nodes and breaks them.

    Optional: `draw_knobs(rng)`, the knobs of a seed that draws its own world (`Case.draw`), and
    `prepare_nodes(nodes, progress)`, as `prepare`, of what these nodes need: their images, say;
    `reaches_foreign`, what of `ENV_NODES_ONLY` it can do to foreign programs as well, and what else
    it does to them less faithfully; `why_no_faulty_disks()`: what a disk of ours for foreign
    programs lacks here (as `unavailable`; without it no environment has one); `restores_data`,
    whether nodes of `Env` start on the data of `DeploymentPlan.data`.
    """

    api_version: int
    name: str
    doc: str
    capabilities: Mapping[Capability, Fidelity]

    def unavailable(self) -> str | None:
        """Why it cannot be used here, with the fix; `None` if it can."""
        ...

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Make what can be made here and is missing, such as an image, if anything, and tell
        `progress` of it. Raises `InfrastructureError`.
        """
        ...

    def check_knobs(self, knobs: Mapping[str, Any]) -> None:
        """Raise `UsageError` for knobs that mean nothing here; called before anything starts."""
        ...

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Deploy with all nodes started, run `main` on the world's loop, and tear down.

        Whatever `main` returned survives a failing teardown, which is logged as a warning and
        left to `clean`. Raises `InfrastructureError` when the nodes cannot be deployed.
        """
        ...

    def clean(self) -> list[str]:
        """Remove what dead runs left behind; returns a line for each thing removed."""
        ...
