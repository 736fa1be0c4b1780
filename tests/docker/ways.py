"""Ways in which another program interferes with a run: it kills, stops or cuts off parts of it.

Each function takes a `Victim`, and acts at once and permanently. The target is never to blame for
the effect. A function that affects the relay needs a nemesis that distinguishes clients.
"""

import os
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import (
    RUN_LABEL,
    Part,
    container_name,
    network_name,
)

__all__ = ["WAYS", "Victim"]


class Victim(NamedTuple):
    """A run and one of its nodes."""

    engine: Engine
    run_id: str
    node: str

    @property
    def container(self) -> str:
        return container_name(self.run_id, self.node)

    @property
    def keeper(self) -> str:
        return container_name(self.run_id, self.node, Part.KEEPER)

    @property
    def relay(self) -> str | None:
        """Return the container that makes the clients' connections, if there is one."""
        name = container_name(self.run_id, "client")
        rows = self.engine.containers(f"{RUN_LABEL}={self.run_id}")
        return name if any(row.name == name for row in rows) else None

    def in_namespace(self, script: str) -> None:
        done = self.engine.exec(self.keeper, ["sh", "-c", script])
        assert done.code == 0, done

    def default_route(self) -> str:
        """Return the default route. `ip link set down` removes it for good."""
        done = self.engine.exec(self.keeper, ["sh", "-c", "ip route show default"])
        return done.output

    def signal_all(self, name: str) -> None:
        """Send a signal to all processes in the node's container, as its user."""
        others = "[ $pid != 1 ] && [ $pid != $$ ] && [ $pid != $PPID ]"
        script = f"cd /proc; for pid in [0-9]*; do {others} && kill -{name} $pid; done; :"
        self.engine.exec(self.container, ["sh", "-c", script], user="")


def _signal_main(victim: Victim, number: signal.Signals) -> None:
    victim.engine._api.kill(victim.container, signal=number.name)


def _signal_program(victim: Victim, number: signal.Signals) -> None:
    """Send a signal to the node's program, not to the init process of its container."""
    state = victim.engine.state(victim.container)
    assert state is not None
    assert state.pid is not None, "the engine must run on this machine"
    with open(f"/proc/{state.pid}/task/{state.pid}/children", encoding="ascii") as file:  # noqa: PTH123
        for pid in map(int, file.read().split()):
            os.kill(pid, number)


def _squeeze(victim: Victim) -> None:
    """Limit the memory so tightly that the kernel kills the program at its next allocation."""
    stats = victim.engine._api.stats(victim.container, stream=False, one_shot=True)
    few = stats["memory_stats"]["usage"] + (1 << 18)
    victim.engine._api.update_container(victim.container, mem_limit=few, memswap_limit=few)


def _disconnect(victim: Victim) -> None:
    network = network_name(victim.run_id)
    victim.engine._api.disconnect_container_from_network(victim.keeper, network, force=True)


def _of_relay(act: Callable[[Engine, str], object]) -> Callable[[Victim], None]:
    def way(victim: Victim) -> None:
        relay = victim.relay
        assert relay is not None, (
            "this run has no relay: it needs a nemesis that tells clients apart"
        )
        act(victim.engine, relay)

    return way


WAYS: Final[tuple[tuple[str, Callable[[Victim], object]], ...]] = (
    ("docker stop of a node", lambda v: v.engine.stop(v.container, grace_s=10)),
    ("docker kill of a node", lambda v: v.engine.kill(v.container)),
    ("docker restart of a node", lambda v: v.engine._api.restart(v.container, timeout=5)),
    ("docker pause of a node", lambda v: v.engine.pause(v.container)),
    ("docker rm -f of a node", lambda v: v.engine.remove(v.container)),
    ("SIGTERM to a node's program", lambda v: _signal_program(v, signal.SIGTERM)),
    ("SIGKILL to a node's program", lambda v: _signal_program(v, signal.SIGKILL)),
    ("SIGSTOP to a node's processes", lambda v: v.signal_all("STOP")),
    ("SIGHUP to a node's container", lambda v: _signal_main(v, signal.SIGHUP)),
    ("too little memory for a node", _squeeze),
    ("docker stop of a keeper", lambda v: v.engine.stop(v.keeper, grace_s=1)),
    ("docker rm -f of a keeper", lambda v: v.engine.remove(v.keeper)),
    ("docker restart of a keeper", lambda v: v.engine._api.restart(v.keeper, timeout=0)),
    ("docker pause of a keeper", lambda v: v.engine.pause(v.keeper)),
    ("docker network disconnect", _disconnect),
    ("ip link set eth0 down", lambda v: v.in_namespace("ip link set eth0 down")),
    ("a route removed", lambda v: v.in_namespace("ip route flush table main")),
    ("a foreign rule that drops", lambda v: v.in_namespace("iptables -I INPUT -j DROP")),
    ("a policy that drops", lambda v: v.in_namespace("iptables -P OUTPUT DROP")),
    ("rules flushed", lambda v: v.in_namespace("iptables -F; iptables -t mangle -F")),
    ("docker stop of the relay", _of_relay(lambda engine, name: engine.stop(name, grace_s=1))),
    ("docker rm -f of the relay", _of_relay(lambda engine, name: engine.remove(name))),
    ("docker pause of the relay", _of_relay(lambda engine, name: engine.pause(name))),
)
