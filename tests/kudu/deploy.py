"""Runs a body against a deployed target, the same in every environment."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.env import ClientEnv
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
from targets.kudu import KuduTarget
from targets.kudu.system import KuduSystem


@dataclasses.dataclass
class Deployed:
    """A running cluster, and the shortest words for what tests do with it."""

    session: Session
    system: KuduSystem
    op_timeout_s: float = 10.0
    limit_s: float = 60.0
    processes: int = 0
    nonces: int = 0

    @property
    def env(self) -> ClientEnv:
        return self.session.env

    def new_client(self):
        self.processes += 1
        return self.system.client(self.processes)

    async def until(
        self,
        what: str,
        check: Callable[[], Awaitable[Convergence]],
        *,
        limit_s: float | None = None,
    ) -> float:
        """Wait for `check`; returns the seconds it took."""
        start_ns = self.env.clock.monotonic_ns()
        limit_s = self.limit_s if limit_s is None else limit_s
        while True:
            state = await check()
            took_s = (self.env.clock.monotonic_ns() - start_ns) / 1e9
            if state.ok:
                return took_s
            assert took_s < limit_s, f"not {what} after {limit_s} s: {state.pending}"
            await asyncio.sleep(0.1)

    async def until_ready(self, **limits: float) -> float:
        return await self.until("ready", self.system.ready, **limits)

    async def until_converged(self, **limits: float) -> float:
        return await self.until("converged", self.system.converged, **limits)

    async def leader(self) -> str:
        roles = await self.system.roles()
        assert roles.leader is not None
        return roles.leader

    async def until_led_by_another(self, old: str) -> None:
        async def check() -> Convergence:
            roles = await self.system.roles()
            leader = roles.leader
            ok = leader not in {None, old} and roles.by_node[leader].ready
            return Convergence(ok=ok, pending=(str(roles),))

        await self.until(f"led by another than {old}", check)

    async def do(
        self, client: Any, f: str, *, timeout_s: float | None = None, **value: Any
    ) -> Completion:
        """One operation, with a fresh nonce for mutations."""
        if f in {"create", "alter", "rename", "delete"}:
            self.nonces += 1
            value.setdefault("nonce", f"n{self.nonces}")
        if f == "create":
            value = {"columns": ["a", "b"], "partitions": 2, "replicas": 3} | value
        return await client.invoke(Request(f, value), timeout_s=timeout_s or self.op_timeout_s)

    async def ok(self, client: Any, f: str, **value: Any) -> dict[str, Any]:
        """The same, and it must succeed."""
        completion = await self.do(client, f, **value)
        assert completion.type is OpType.OK, (f, value, completion)
        return completion.value

    async def until_done(self, client: Any, f: str, name: str) -> None:
        async def check() -> Convergence:
            value = await self.ok(client, f, name=name)
            return Convergence(ok=value.get("done", False), pending=(str(value),))

        await self.until(f, check)


def deploy(
    body: Callable[[Deployed], Awaitable[Any]],
    *,
    environment: str = "sim",
    masters: int = 3,
    tservers: int = 3,
    seed: int = 1,
    bugs: tuple[str, ...] = (),
    flags: str = "",
    knobs: dict[str, Any] | None = None,
    spare_masters: int = 0,
    joining: int = 0,
    profile: str = "strict",
    more: dict[str, Any] | None = None,
) -> Any:
    """Deploy, wait until ready, run `body`, tear down. The masters after the first ones, `joining`
    in number, are no members; each knows of itself and of the first ones. `spare_masters` are the
    target's option, and so are `more`.
    """
    target = KuduTarget()
    settings = TargetSettings(
        profile=profile,
        bugs=bugs,
        options={
            "masters": masters,
            "spare_masters": spare_masters,
            "tservers": tservers,
            "resend": 0,
            "kudu_flag": flags,
            **(more or {}),
        },
    )

    async def main(session: Session) -> Any:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        deployed = Deployed(session, system)
        if environment != "sim":  # in real time, on a machine that may be crowded
            deployed.op_timeout_s, deployed.limit_s = 60.0, 240.0
        await deployed.until_ready()
        return await body(deployed)

    plan = DeploymentPlan(
        run_id=f"test-{seed}",
        nodes=_with_joining(tuple(target.nodes(settings)), joining),
        seed=seed,
        knobs=knobs or {},
        folder=None,
    )
    return load_plugin("environments", environment).execute(plan, main)


def _with_joining(nodes: tuple[NodeSpec, ...], count: int) -> tuple[NodeSpec, ...]:
    first = [node for node in nodes if node.role == "master"]
    more = []
    for number in range(len(first) + 1, len(first) + count + 1):
        address = f"m{number}:7051"
        masters = [*first[0].config["masters"], address]
        config = {**first[0].config, "address": address, "masters": masters}
        more.append(msgspec.structs.replace(first[0], name=f"m{number}", config=config))
    return (*nodes, *more)
