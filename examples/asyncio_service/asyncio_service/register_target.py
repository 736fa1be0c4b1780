"""The target `aiohttp-register`: how to start the service, and a client for it."""

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
NAMES = ("n1", "n2", "n3")  # n1 is the primary
NODES = [Address(name, PORT) for name in NAMES]


async def operate(web: Web, request: Request) -> dict[str, Any]:
    """One operation of the vocabulary `register`."""
    asked = request.value
    match request.f:
        case "read":
            return {"result": "ok", "value": await web.ask("GET", "/")}
        case "write":
            await web.ask("PUT", "/", asked["value"], changes=True)
        case "cas":
            body = {"old": asked["old"], "new": asked["new"]}
            if not await web.ask("POST", "/cas", body, changes=True):
                raise DeclinedError({"result": "mismatch"})
    return {"result": "ok"}


class AiohttpRegister(Target):
    """Three nodes of an aiohttp service, which runs unmodified in the simulation."""

    api_version = 2
    name = "aiohttp-register"
    doc = "an example: an unmodified aiohttp service; --race and --unsynced break it"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options = (
        Option("race", False, "do a compare-and-set without its lock"),
        Option("unsynced", False, "acknowledge writes that are not durable"),
    )

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        command = ["python:asyncio_service.register_app:main", "--data", "{data}"]
        command += ["--host", "{host}", "--port", f"{{port:{PORT}}}"]
        flags = [
            f"--{name}" for name in ("race", "unsynced") if settings.options[name.replace("-", "_")]
        ]
        forward = ["--primary", f"{{peer:n1:{PORT}}}"]
        return [
            NodeSpec(
                name=name,
                role="register",
                ports=(PORT,),
                command=tuple(command + (flags if name == "n1" else forward)),
                ready=ReadyPort(PORT),
            )
            for name in NAMES
        ]

    def open(self, deployment: Deployment) -> "RegisterSystem":
        return RegisterSystem(deployment)


class RegisterSystem(System):
    """The three running nodes."""

    def __init__(self, deployment: Deployment) -> None:
        self.env = deployment.env

    def client(self, process: int) -> WebClient:
        return WebClient(self.env, process, NODES, operate)

    def core(self, rng: random.Random) -> tuple[str, ...]:
        return ("n1", rng.choice(NAMES[1:]))  # a forwarder needs the primary

    async def groups(self) -> dict[str, Roles]:
        return {"register": Roles({"n1": NodeRole("leader")}, NAMES)}

    async def ready(self) -> Convergence:
        return agreement(await ask_each(self.env, NODES, "GET", "/", within_s=2.0), NAMES)

    converged = ready
