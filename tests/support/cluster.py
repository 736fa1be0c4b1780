"""A fake cluster that records its calls."""

import asyncio

from harness.cluster import CLIENT, Bite, ClusterEvent, DiskQuality, NodeSpec, NodeState
from harness.faults.nemesis_from_text import load_nemesis
from harness.plugins import Convergence, NodeRole, Roles, System
from harness.run.conductor import FaultConductor
from harness.run.recorder import Recorder

MASTERS = ("m1", "m2", "m3")


class FakeEnv:
    """A fake `Env`: tasks and clock of the running loop."""

    @property
    def clock(self):
        return self

    def monotonic_ns(self):
        return int(asyncio.get_running_loop().time() * 1e9)

    def spawn(self, coro, *, name):
        return asyncio.get_running_loop().create_task(coro, name=name)


class FakeSystem(System):
    """A fake system that is always ready, with leader m2; `step-down` returns its nodes."""

    client = core = converged = None

    def operations(self):
        return {"step-down": self.step_down}

    async def ready(self):
        return Convergence(ok=True)

    async def groups(self):
        return {"catalog": Roles({"m2": NodeRole("leader", 3)}, MASTERS)}

    async def step_down(self, nodes):
        return f"asked {', '.join(nodes)}" if "m2" in nodes else None


class FakeCluster:
    def __init__(self, down=(), clients=(CLIENT,)):
        self.down = set(down)
        self.clients = clients
        self.nodes = {name: NodeSpec(name=name, role="x", ports=()) for name in (*MASTERS, "t1")}
        self.calls = []
        self.callbacks = []
        self.links = {}  # link -> the faults on it
        self.laid = []  # links and quality of each link fault
        self.clocks, self.factors, self.disks = {}, {}, {}
        self.requests = 0  # requests of each disk since the last query

    def subscribe(self, callback):
        self.callbacks.append(callback)

    def end(self, node):
        self.down.add(node)
        for callback in self.callbacks:
            data = {"code": 1, "expected": False}
            callback(ClusterEvent(0, node, "node-exited", data, by_driver=True))

    def call_later(self, delay_s, callback):
        asyncio.get_running_loop().call_later(delay_s, callback)

    def state(self, node):
        return NodeState.DOWN if node in self.down else NodeState.RUNNING

    async def set_links(self, wanted, *, lease_s):
        """Set the faults on links.

        Each fault that is removed from a link counts as having affected seven frames.
        """
        gone, new = set(), {}
        for link, state in wanted.items():
            before = self.links.get(link, {})
            gone |= before.keys() - state.keys()
            for fault in state.keys() - before.keys():
                new.setdefault(fault, (state[fault], []))[1].append(link)
            self.links[link] = state
        self.laid += [(sorted(links), quality) for quality, links in new.values()]
        self.calls.append(("set-links", lease_s))
        return {fault: Bite(7, "frames") for fault in gone}

    @property
    def cuts(self):
        return [links for links, quality in self.laid if quality is None]

    async def mend(self):
        self.calls.append(("mend",))

    async def reset(self, links):
        self.calls.append(("reset", list(links)))
        return 5

    async def stop(self, node):
        self.calls.append(("stop", node))
        was_up = node not in self.down
        self.down.add(node)
        return was_up

    async def kill(self, node, *, lose_unsynced=False, torn=False):
        self.calls.append(("kill", node, lose_unsynced, torn))
        was_up = node not in self.down
        self.down.add(node)
        return was_up

    async def wait_ready(self, node):
        return None

    async def start(self, node, variant=None):
        self.calls.append(("start", node) if variant is None else ("start", node, variant))
        self.down.discard(node)
        return True

    async def pause(self, node, *, lease_s):
        self.calls.append(("pause", node, lease_s))
        return True

    async def resume(self, node):
        self.calls.append(("resume", node))
        return True

    async def skew(self, node, *, offset_ns, drift_ppm=0):
        self.clocks[node] = offset_ns, drift_ppm

    async def slow(self, node, *, factor):
        self.factors[node] = factor

    async def worsen_disk(self, node, quality):
        felt = self.requests if self.disks.get(node, DiskQuality()) != DiskQuality() else 0
        self.disks[node] = quality
        return felt


def conductor_of(text, cluster, system=None):
    """Return a conductor of one fault, and the conductor's recorder. The fault is given as text."""
    env = FakeEnv()
    recorder = Recorder(env)
    conductor = FaultConductor(
        cluster=cluster,
        env=env,
        system=system or FakeSystem(),
        nemeses={text: load_nemesis(text)},
        recorder=recorder,
        observe_roles=lambda roles: None,
    )
    return conductor, recorder
