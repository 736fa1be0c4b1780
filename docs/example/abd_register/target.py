"""The target plug-in: its nodes, its clients, and how the harness inspects it."""

import random
from collections.abc import Sequence
from typing import Any, Final

from abd_register.client import AbdClient, Channel
from abd_register.node import PORT
from harness.cluster import NodeSpec
from harness.env import ClientEnv
from harness.plugins import (
    Convergence,
    Deployment,
    NodeRole,
    Option,
    Roles,
    System,
    Target,
    override,
)
from harness.plugins import TargetSettings as Settings

LOOK_S = 1.0


BUGS: Final = {"NO-WRITE-BACK": "a read does not write back to a majority"}


class AbdRegister(Target):
    """A register on `--nodes` nodes, written against `Env`: it runs in all environments."""

    api_version = 2
    name = "abd-register"
    doc = "a register on three nodes, read and written by majorities"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs = BUGS
    options = (Option("nodes", 3, "how many nodes keep the register"),)

    def nodes(self, settings: Settings) -> Sequence[NodeSpec]:
        entry = "abd_register.node:main"
        return [
            NodeSpec(name=f"n{number}", role="replica", ports=(PORT,), entry=entry)
            for number in range(1, settings.options["nodes"] + 1)
        ]

    def open(self, deployment: Deployment) -> "AbdSystem":
        write_back = "NO-WRITE-BACK" not in deployment.settings.bugs
        return AbdSystem(deployment.env, list(deployment.nodes), write_back)


class AbdSystem(System):
    """The deployed nodes of one run."""

    def __init__(self, env: ClientEnv, names: list[str], write_back: bool) -> None:
        self.env, self.names, self.write_back = env, names, write_back

    def client(self, process: int) -> AbdClient:
        return AbdClient(self.env, self.names, process, write_back=self.write_back)

    def core(self, rng: random.Random) -> Sequence[str]:
        return rng.sample(self.names, len(self.names) // 2 + 1)

    async def look(self) -> dict[str, dict[str, Any] | None]:
        """Return the value of every node; `None` for a silent one."""
        values: dict[str, dict[str, Any] | None] = {}
        for name in self.names:
            channel = Channel(self.env, name)
            values[name] = await channel.ask({"do": "get"}, LOOK_S)
            channel.drop()
        return values

    async def groups(self) -> dict[str, Roles]:
        values = await self.look()
        answering = {name: NodeRole("replica") for name, kept in values.items() if kept}
        return {"register": Roles(answering, tuple(values))}

    async def ready(self) -> Convergence:
        values = await self.look()
        silent = [f"{name} does not answer" for name, kept in values.items() if kept is None]
        return Convergence(not silent, tuple(silent))

    converged = ready

    @override
    async def snapshot(self) -> dict[str, Any]:
        return dict(await self.look())
