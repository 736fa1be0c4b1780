"""Helpers that run a test's body against a deployed target, in any environment."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.plugins import Completion, Convergence, TargetSettings
from targets.kudu import KuduTarget
from tests.support import deployed


@dataclasses.dataclass
class Deployed(deployed.Deployed):
    def __post_init__(self) -> None:
        real = self.settings.environment != "sim"  # a real machine may be busy
        self.op_timeout_s, self.limit_s = (60.0, 240.0) if real else (10.0, 60.0)

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
        """Run one operation; each mutation gets a new nonce."""
        if f in {"create", "alter", "rename", "delete"}:
            value.setdefault("nonce", self.next_nonce())
        if f == "create":
            value = {"columns": ["a", "b"], "partitions": 2, "replicas": 3} | value
        return await self.invoke(client, f, value, timeout_s=timeout_s)

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
    """Deploy the target, wait until it is ready, run `body`, and tear it down. The last `joining`
    masters are not members at first; each knows only itself and the initial masters.
    `spare_masters` and `more` are options of the target.
    """
    target = KuduTarget()
    settings = TargetSettings(
        profile=profile,
        bugs=bugs,
        environment=environment,
        options={
            "masters": masters,
            "spare_masters": spare_masters,
            "tservers": tservers,
            "resend": 0,
            "kudu_flag": flags,
            **(more or {}),
        },
    )

    nodes = _with_joining(tuple(target.nodes(settings)), joining)
    return deployed.deploy(
        target, settings, body,
        make=Deployed, nodes=nodes, environment=environment, seed=seed, knobs=knobs,
    )  # fmt: skip


def _with_joining(nodes: tuple[NodeSpec, ...], count: int) -> tuple[NodeSpec, ...]:
    first = [node for node in nodes if node.role == "master"]
    more = []
    for number in range(len(first) + 1, len(first) + count + 1):
        address = f"m{number}:7051"
        masters = [*first[0].config["masters"], address]
        config = {**first[0].config, "address": address, "masters": masters}
        more.append(msgspec.structs.replace(first[0], name=f"m{number}", config=config))
    return (*nodes, *more)
