"""The target `consensual`: three nodes of a Raft library from PyPI, and a client."""

import random
from typing import Any

from harness.cluster import NodeSpec, ReadyPort
from harness.env import Address
from harness.plugins import (
    Convergence,
    Deployment,
    NodeRole,
    Option,
    Request,
    Roles,
    System,
    Target,
)
from harness.plugins import TargetSettings as Settings
from harness.webclient import DeclinedError, Web, WebClient, agreement, ask_each

PORT = 8080
NAMES = ("n1", "n2", "n3")
NODES = [Address(name, PORT) for name in NAMES]


async def operate(web: Web, request: Request) -> dict[str, Any]:
    """One operation of the vocabulary `register`; a read is a command of the log, too."""
    asked = request.value
    match request.f:
        case "read":
            return {"result": "ok", "value": (await web.ask("GET", "/"))["value"]}
        case "write":
            await web.ask("PUT", "/", asked["value"], changes=True)
        case "cas":
            body = {"old": asked["old"], "new": asked["new"]}
            if not (await web.ask("POST", "/cas", body, changes=True))["done"]:
                raise DeclinedError({"result": "mismatch"})
    return {"result": "ok"}


class Consensual(Target):
    """Three nodes of the Raft library `consensual`, which run unmodified in the simulation."""

    api_version = 2
    name = "consensual"
    doc = "an example: the Raft library consensual from PyPI; --local-reads answers reads wrongly"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options = (Option("local-reads", False, "answer reads from a node's own copy"),)

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        command = ["python:asyncio_service.raft_app:main", "--host", "{host}"]
        command += ["--port", f"{{port:{PORT}}}"]
        command += ["--local-reads"] * settings.options["local_reads"]
        found = ["--found", *(f"{{address:{name}:{PORT}}}" for name in NAMES[1:])]
        return [
            NodeSpec(
                name=name,
                role="raft",
                ports=(PORT,),
                command=(
                    *command,
                    *("--address", f"{{address:{name}:{PORT}}}"),
                    *(found if name == "n1" else []),
                ),
                ready=ReadyPort(PORT),
            )
            for name in NAMES
        ]

    def open(self, deployment: Deployment) -> "RaftSystem":
        return RaftSystem(deployment)


class RaftSystem(System):
    """The three running nodes."""

    def __init__(self, deployment: Deployment) -> None:
        self.env = deployment.env

    def client(self, process: int) -> WebClient:
        return WebClient(self.env, process, NODES, operate)

    def core(self, rng: random.Random) -> tuple[str, ...]:
        return tuple(rng.sample(NAMES, 2))

    async def groups(self) -> dict[str, Roles]:
        roles = await ask_each(self.env, NODES, "GET", "/role")
        leaders = {n: NodeRole("leader", r["term"]) for n, r in roles.items() if r["leads"]}
        return {"raft": Roles(leaders, NAMES)}

    async def ready(self) -> Convergence:
        roles = await ask_each(self.env, NODES, "GET", "/role")
        formed = agreement(roles, NAMES, "members", "stable", "term")
        pending = list(formed.pending)
        if not any(role["leads"] for role in roles.values()):
            pending.append("no node leads")
        pending += [f"{n} knows {r['members']}" for n, r in roles.items() if len(r["members"]) < 3]
        return Convergence(not pending, tuple(pending))

    converged = ready
