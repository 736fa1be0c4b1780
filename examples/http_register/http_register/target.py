"""The plug-in, which starts the program, and a client for its protocol."""

import random
from typing import Any

from harness.cluster import NodeSpec, ReadyHttp
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
from harness.webclient import Web, WebClient, agreement, ask_each

PORT = 8080
NAMES = ("r1", "r2", "r3")  # r1 is the primary
NODES = [Address(name, PORT) for name in NAMES]


async def operate(web: Web, request: Request) -> dict[str, Any]:
    """Run one operation of the vocabulary `register`."""
    if request.f == "read":
        return {"result": "ok", "value": await web.ask("GET", "/")}
    await web.ask("PUT", "/", request.value["value"], changes=True)
    return {"result": "ok"}


class HttpRegister(Target):
    """The target plug-in: three nodes, started by their command line."""

    api_version = 2
    name = "http-register"
    doc = "an example: a foreign HTTP register on three nodes; --stale answers reads wrongly"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options = (Option("stale", False, "let the other nodes answer reads from an old copy"),)

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        command = ["python3", "{package:http_register}/http_register/server.py"]
        command += ["--host", "{host}", "--port", f"{{port:{PORT}}}", "--data", "{data}"]
        follow = ["--primary", f"{{peer:r1:{PORT}}}"] + ["--stale"] * settings.options["stale"]
        words = {name: tuple(command + (follow if name != "r1" else [])) for name in NAMES}
        ready = ReadyHttp(PORT, "/")
        return [
            NodeSpec(name=n, role="register", ports=(PORT,), command=words[n], ready=ready)
            for n in NAMES
        ]

    def open(self, deployment: Deployment) -> "HttpSystem":
        return HttpSystem(deployment)


class HttpSystem(System):
    """The three running nodes, as the harness sees them."""

    def __init__(self, deployment: Deployment) -> None:
        self.env = deployment.env

    def client(self, process: int) -> WebClient:
        return WebClient(self.env, process, NODES, operate)

    def core(self, rng: random.Random) -> tuple[str, ...]:
        # a follower serves only together with the primary
        return (
            NAMES[0],
            rng.choice(NAMES[1:]),
        )

    async def groups(self) -> dict[str, Roles]:
        return {"register": Roles({"r1": NodeRole("leader")}, NAMES)}  # only the primary ever leads

    async def ready(self) -> Convergence:
        return agreement(await ask_each(self.env, NODES, "GET", "/"), NAMES)

    converged = ready
