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
    """The nodes to deploy, and all settings that an environment needs to deploy them."""

    run_id: str
    nodes: tuple[NodeSpec, ...]
    seed: int
    knobs: dict[str, Any]
    folder: Path | None  # for node logs; `None` means no logs
    link_proxy: str | None = None  # URL of a Toxiproxy server, in place of the harness's own
    clients: int = 1  # how many clients run concurrently
    ends: tuple[str, ...] = (CLIENT,)  # the clients' link ends; see `Cluster.clients`
    clocks: frozenset[str] = frozenset()  # foreign programs whose clocks the run may change
    data: Path | None = None  # one folder per node with its initial data


@runtime_checkable
class KeepsData(Protocol):
    """A cluster whose nodes have data in folders that can be copied out."""

    def data_place(self, node: str) -> str:
        """Return in words where a node's data are, or ""."""
        ...

    async def save_data(self, node: str, folder: Path) -> None:
        """Copy the data of a node that is down or paused to a new folder."""
        ...


class Session:
    """A running deployment, on its running event loop."""

    cluster: Controls  # faults go through this cluster
    env: ClientEnv  # the clients' env, with the run's clock and randomness
    interrupted: asyncio.Event  # set by the first Ctrl-C; the second cancels the run

    def adopt(self, label: str, random: random.Random) -> random.Random:  # noqa: ARG002
        """Register `random`, a stream of the run, and return it. The simulation may reseed it."""
        return random

    @property
    def patience(self) -> float:
        """The factor by which the target may take longer than usual to recover in this world.

        More than 1 in a simulation whose disks are much slower than real ones.
        """
        return 1.0

    def trace_digest(self) -> str | None:
        """Return a digest of everything that happened so far; `None` outside the simulation.

        Equal runs have equal digests.
        """
        return None


class EnvironmentTraits(TypedDict, total=False):
    """Optional data of an environment, for its class header."""

    reaches_foreign: Mapping[Capability, Fidelity]
    owns_programs: bool
    restores_data: bool


class Environment(Plugin):
    """An environment that deploys nodes and breaks them."""

    capabilities: Mapping[Capability, Fidelity]

    reaches_foreign: Mapping[Capability, Fidelity] | None = None
    """Map capabilities to their fidelity on foreign programs. The mapping has the members of
    `ENV_NODES_ONLY` that work on foreign programs, and the capabilities whose fidelity is lower
    there than on nodes of `Env`. `None` if the environment runs no foreign programs."""
    owns_programs: bool = False
    """Whether the disk and the clock of a Python program (`harness.nodes.program`) are the
    environment's own, so that all faults work on it."""
    restores_data: bool = False
    """Whether nodes of `Env` can start on the data in `DeploymentPlan.data`."""

    def __init_subclass__(cls, **traits: Unpack[EnvironmentTraits]) -> None:
        set_traits(cls, EnvironmentTraits, traits)

    @abstractmethod
    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Deploy and start all nodes, run `main` on the environment's loop, and tear down.

        If the teardown fails, `main`'s result is still returned. A warning is logged, and `clean`
        can remove the rest. Raises `InfrastructureError` if the nodes cannot be deployed.
        """

    def unavailable(self) -> str | None:
        """Return why the environment cannot be used here, and the fix; `None` if it can be used."""
        return None

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Create what every deployment needs, such as an image, if it is missing.

        Calls `progress` with notes for the user. Raises `InfrastructureError`.
        """

    def prepare_nodes(self, nodes: Sequence[NodeSpec], progress: Callable[[str], None]) -> None:
        """Create what these nodes need, such as images, if it is missing. Raises like `prepare`."""

    def why_no_faulty_disks(self) -> str | None:
        """Return why foreign programs cannot have a faulty disk here; `None` if they can."""
        return f"the environment {self.name!r} has none"

    def check_knobs(self, knobs: Mapping[str, Any]) -> None:
        """Raise `UsageError` for knobs that have no meaning here; called before anything starts."""
        if knobs:
            raise UsageError(
                f"the knobs {', '.join(sorted(knobs))} are only for the simulation; drop them from "
                f"the case, or use --env sim instead of --env {self.name}"
            )

    def draw_knobs(self, rng: random.Random) -> dict[str, Any] | None:
        """Draw the environment's knobs from `rng`, for a case with random settings (`Case.draw`).

        Returns `None` if the environment has no knobs.
        """
        del rng
        return None

    def clean(self) -> list[str]:
        """Remove the leftovers of dead runs; returns one line for each of them."""
        return []
