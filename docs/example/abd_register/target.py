"""The target plug-in: which nodes there are, and how the harness talks to them and looks at them."""

import random
from collections.abc import Sequence
from typing import Any, Final

from abd_register.client import AbdClient, Channel
from abd_register.node import PORT
from harness.cluster import NodeSpec
from harness.env import ClientEnv
from harness.plugins import Convergence, NodeRole, Option, Roles
from harness.plugins import TargetSettings as Settings

LOOK_S = 1.0


class AbdRegister:
    """A register on `--nodes` nodes, written against `Env`: it runs in all environments."""

    api_version = 1
    name = "abd-register"
    doc = "a register on three nodes, read and written by majorities"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: Final = {"NO-WRITE-BACK": "a read does not tell a majority what it found"}
    options = (Option("nodes", 3, "how many nodes keep the register"),)

    def names(self, settings: Settings) -> list[str]:
        return [f"n{number}" for number in range(1, settings.options["nodes"] + 1)]

    def nodes(self, settings: Settings) -> Sequence[NodeSpec]:
        entry = "abd_register.node:main"
        return [
            NodeSpec(name=name, role="replica", ports=(PORT,), entry=entry)
            for name in self.names(settings)
        ]

    def client(self, env: ClientEnv, settings: Settings, process: int) -> AbdClient:
        write_back = "NO-WRITE-BACK" not in settings.bugs
        return AbdClient(env, self.names(settings), process, write_back=write_back)

    def quorum_core(self, settings: Settings, rng: random.Random) -> Sequence[str]:
        names = self.names(settings)
        return rng.sample(names, len(names) // 2 + 1)

    async def look(self, env: ClientEnv, settings: Settings) -> dict[str, dict[str, Any] | None]:
        """What every node keeps; `None` for one that does not answer."""
        found: dict[str, dict[str, Any] | None] = {}
        for name in self.names(settings):
            channel = Channel(env, name)
            found[name] = await channel.ask({"do": "get"}, LOOK_S)
            channel.drop()
        return found

    async def roles(self, env: ClientEnv, settings: Settings) -> Roles:
        found = await self.look(env, settings)
        answering = {name: NodeRole("replica") for name, kept in found.items() if kept}
        return Roles(answering, tuple(found))

    async def ready(self, env: ClientEnv, settings: Settings) -> Convergence:
        found = await self.look(env, settings)
        silent = [f"{name} does not answer" for name, kept in found.items() if kept is None]
        return Convergence(not silent, tuple(silent))

    converged = ready

    async def snapshot(self, env: ClientEnv, settings: Settings) -> dict[str, Any]:
        return dict(await self.look(env, settings))
