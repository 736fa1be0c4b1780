"""A target deployed for a test, in any environment."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from harness.cluster import NodeSpec
from harness.ops import OpType
from harness.plugins import (
    Completion,
    Convergence,
    Deployment,
    DeploymentPlan,
    Request,
    Session,
    TargetSettings,
)
from harness.registry import load_plugin

POLL_S = 0.1


@dataclasses.dataclass
class Deployed:
    """A running target, with short methods for the operations of tests."""

    session: Session
    system: Any
    settings: TargetSettings
    op_timeout_s: float = 20.0
    limit_s: float = 60.0
    clients: list[Any] = dataclasses.field(default_factory=list)
    nonces: int = 0

    @property
    def env(self) -> Any:
        return self.session.env

    @property
    def cluster(self) -> Any:
        return self.session.cluster

    def new_client(self) -> Any:
        self.clients.append(self.system.client(len(self.clients) + 1))
        return self.clients[-1]

    async def until(
        self,
        state: str,
        check: Callable[[], Awaitable[Convergence]],
        *,
        limit_s: float | None = None,
    ) -> float:
        """Wait until `state` passes `check`; return the time in seconds."""
        start_ns = self.env.clock.monotonic_ns()
        limit_s = self.limit_s if limit_s is None else limit_s
        while True:
            result = await check()
            took_s = (self.env.clock.monotonic_ns() - start_ns) / 1e9
            if result.ok:
                return took_s
            assert took_s < limit_s, f"not {state} after {limit_s} s: {result.pending}"
            await asyncio.sleep(POLL_S)

    async def until_ready(self, **limits: float) -> float:
        return await self.until("ready", self.system.ready, **limits)

    async def until_converged(self, **limits: float) -> float:
        return await self.until("converged", self.system.converged, **limits)

    def next_nonce(self) -> str:
        self.nonces += 1
        return f"n{self.nonces}"

    async def invoke(
        self, client: Any, f: str, value: Any, *, timeout_s: float | None = None
    ) -> Completion:
        return await client.invoke(Request(f, value), timeout_s=timeout_s or self.op_timeout_s)

    async def do(self, client: Any, f: str, **value: Any) -> Completion:
        """Run one operation; targets override this method to add nonces and defaults."""
        return await self.invoke(client, f, value)

    async def ok(self, client: Any, f: str, *names: str, **value: Any) -> Any:
        """Run an operation that must succeed; return its value."""
        completion = await self.do(client, f, *names, **value)
        assert completion.type is OpType.OK, (f, names, value, completion)
        return completion.value

    async def refused(self, client: Any, f: str, *names: str, **value: Any) -> Any:
        """Run an operation that must be refused; return the result of the refusal."""
        completion = await self.do(client, f, *names, **value)
        assert completion.type is OpType.FAIL, (f, names, value, completion)
        return completion.value["result"]


def deploy(
    target: Any,
    settings: TargetSettings,
    body: Callable[[Any], Awaitable[Any]],
    *,
    make: Callable[[Session, Any, TargetSettings], Any] = Deployed,
    nodes: Sequence[NodeSpec] | None = None,
    environment: str = "sim",
    seed: int = 1,
    knobs: dict[str, Any] | None = None,
) -> Any:
    """Deploy a target, wait until it is ready, run `body` with it, and close the clients."""

    async def main(session: Session) -> Any:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        deployed = make(session, system, settings)
        await deployed.until_ready()
        try:
            return await body(deployed)
        finally:
            for client in deployed.clients:
                await client.close()

    world = load_plugin("environments", environment)
    plan = DeploymentPlan(
        run_id=f"test-{seed}",
        nodes=tuple(target.nodes(settings) if nodes is None else nodes),
        seed=seed,
        knobs=knobs or {},
        folder=None,
    )
    if hasattr(world, "prepare_nodes"):
        world.prepare_nodes(plan.nodes, print)
    return world.execute(plan, main)
