"""A deployment of bundled servers whose clients are Kudu's own Java clients (`--client java`)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

from harness.env import Address, ClientEnv
from harness.plugins import Client, Convergence, override
from targets.apache_kudu.gateway.server import Gateway
from targets.apache_kudu.javaclient.client import JavaClients
from targets.apache_kudu.javaclient.program import JavaProgram
from targets.kudu.system import KuduSystem, Layout


class _ThroughGateway:
    def __init__(self, env: ClientEnv, gateway: Gateway) -> None:
        self._env = env
        self._gateway = gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def endpoint(self, address: Address) -> tuple[str, int]:
        return self._gateway.places[str(address)]


def through(env: ClientEnv, gateway: Gateway) -> ClientEnv:
    """Return `env`, but with the addresses of the servers leading to the gateway."""
    return cast(ClientEnv, _ThroughGateway(env, gateway))


class JavaKuduSystem(KuduSystem):
    """Bundled masters and tablet servers, with the gateway and Java clients in front of them.

    The harness itself inspects and changes the servers by the bundled RPC, without the gateway.
    """

    def __init__(self, env: ClientEnv, layout: Layout, java: tuple[str, str]) -> None:
        """Open the deployment. `java` has the path of Java and a class path."""
        super().__init__(env, layout)
        masters, tservers = layout.all_masters.values(), layout.tservers.values()
        self._gateway = Gateway(env, self._dial, masters, tservers)
        outside = through(env, self._gateway)
        self._java = JavaClients(
            outside,
            JavaProgram(outside, *java),
            self._gateway.names,
            masters=layout.masters.values(),
            tservers=tservers,
            uuids=self._gateway.uuids,
        )

    @override
    def client(self, process: int) -> Client:
        return self._java.client(process)

    @override
    def core(self, rng: random.Random) -> Sequence[str]:
        return self._java.core_of(super().core(rng), self._layout.all_masters)

    @override
    async def ready(self) -> Convergence:
        state = await super().ready()
        if state.ok:
            self._gateway.start()
        return await self._java.ready(state)
