"""Environments, their sessions, and plans of deployments."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec

from harness.cluster import CLIENT, Capability, Controls, Fidelity, NodeSpec
from harness.env import ClientEnv
from harness.errors import UsageError
from harness.plugins._base import Plugin, set_traits

T = TypeVar("T")


class DeploymentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment for an environment."""

    run_id: str
    nodes: tuple[NodeSpec, ...]
    seed: int
    knobs: dict[str, Any]
    folder: Path | None  # for node logs; None keeps nothing
    link_proxy: str | None = None  # URL of a Toxiproxy server to use instead of our own
    clients: int = 1  # the number of concurrent clients
    ends: tuple[str, ...] = (CLIENT,)  # of links, for them; see `Cluster.clients`
    clocks: frozenset[str] = frozenset()  # foreign programs whose clocks the run may change
    data: Path | None = None  # one folder per node, with which it starts


@runtime_checkable
class KeepsData(Protocol):
    """A cluster whose nodes have data in folders that can be copied out."""

    def data_place(self, node: str) -> str:
        """The place of a node's data, in words; empty if there is none."""
        ...

    async def save_data(self, node: str, folder: Path) -> None:
        """Copy the data of a node that is down to a new folder."""
        ...


class Session:
    """A deployment while it lasts, on its running event loop."""

    cluster: Controls  # faults go through it
    env: ClientEnv  # for clients; also the clock and randomness of the run
    interrupted: asyncio.Event  # set by the first Ctrl-C; the second cancels the run

    def trace_digest(self) -> str | None:
        """Return a digest of all that happened so far, equal for equal runs; only simulated."""
        return None


class EnvironmentTraits(TypedDict, total=False):
    """Optional data of an environment, for its class header."""

    reaches_foreign: Mapping[Capability, Fidelity]
    restores_data: bool


class Environment(Plugin):
    """A world that deploys nodes and breaks them."""

    capabilities: Mapping[Capability, Fidelity]

    reaches_foreign: Mapping[Capability, Fidelity] | None = None
    """What of `ENV_NODES_ONLY` it can do to foreign programs, and what else less faithfully than to
    nodes of `Env`. `None` if it runs no foreign programs."""
    restores_data: bool = False
    """Whether nodes of `Env` start on the data of `DeploymentPlan.data`."""

    def __init_subclass__(cls, **traits: Unpack[EnvironmentTraits]) -> None:
        set_traits(cls, EnvironmentTraits, traits)

    @abstractmethod
    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Deploy with all nodes started, run `main` on the world's loop, and tear down.

        The result of `main` survives a failing teardown, which is logged as a warning and left to
        `clean`. Raises `InfrastructureError` if the nodes cannot be deployed.
        """

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the fix; `None` if it can."""
        return None

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Make what every deployment needs and is missing, such as an image; report `progress`.

        Raises `InfrastructureError`.
        """

    def prepare_nodes(self, nodes: Sequence[NodeSpec], progress: Callable[[str], None]) -> None:
        """Make what these nodes need and is missing, such as their images, as `prepare` does."""

    def why_no_faulty_disks(self) -> str | None:
        """Return what foreign programs lack here to have a faulty disk; `None` if they can."""
        return f"the environment {self.name!r} has none"

    def check_knobs(self, knobs: Mapping[str, Any]) -> None:
        """Raise `UsageError` for knobs without a meaning here; called before anything starts."""
        if knobs:
            raise UsageError(
                f"the knobs {', '.join(sorted(knobs))} turn the simulation only; drop them from "
                f"the case, or use --env sim instead of --env {self.name}"
            )

    def draw_knobs(self, rng: random.Random) -> dict[str, Any] | None:
        """Return the knobs of a seed that draws its own world (`Case.draw`), if it has knobs."""
        del rng
        return None

    def clean(self) -> list[str]:
        """Remove what dead runs left behind; returns one line for each thing removed."""
        return []
