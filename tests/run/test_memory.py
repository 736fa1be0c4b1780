"""The sizes of the nodes' memory become a fact at the end of the history, if measurable."""

import itertools

from harness.cluster import Usage
from harness.errors import InfrastructureError
from harness.registry import load_plugin
from harness.run.phases import USAGE_POLL_S
from tests.run.test_conduct_sim import Behaving, kudu, run, toy


class Measuring:
    """The simulation, with sizes of memory that the test chooses."""

    def __init__(self, held):
        self._sim = load_plugin("environments", "sim")
        self._held = held

    def execute(self, plan, main):
        async def usage(node):
            held = self._held.get(node)
            if isinstance(held, Exception):
                raise held
            return Usage(memory_bytes=held)

        async def measured(session):
            cluster = Behaving(session.cluster, usage=usage)
            return await main(Behaving(session, cluster=cluster))

        return self._sim.execute(plan, measured)


def facts(history, f):
    return [op.value for op in history.facts(f)]


def test_a_simulation_has_none_and_tells_of_disks():
    _, outcome = run(toy(12, time_limit_s=25.0))
    assert facts(outcome.history, "memory") == []
    looks = list(outcome.history.facts("usage"))
    assert {frozenset(op.value) for op in looks} == {frozenset({"disk_bytes", "written_bytes"})}
    gaps_s = [(b.time - a.time) / 1e9 for a, b in itertools.pairwise(looks)]
    assert gaps_s[:-1] == [USAGE_POLL_S] * (len(gaps_s) - 1)
    assert len(gaps_s) >= 2
    written = [op.value["written_bytes"] for op in looks]
    assert all(a[node] <= b[node] for a, b in itertools.pairwise(written) for node in a)
    assert all(sum(op.value["disk_bytes"].values()) > 0 for op in looks)


def test_one_that_cannot_be_measured_costs_nothing_but_its_number():
    broken = InfrastructureError("the engine was away")
    environment = Measuring({"m1": 5 << 20, "m2": broken})
    _, outcome = run(kudu(3, time_limit_s=3.0), environment=environment)
    (measured,) = facts(outcome.history, "memory")
    assert {node for node, held in measured["bytes"].items() if held} == {"m1"}
    assert {"m2", "m3", "t1"} <= measured["bytes"].keys()
    assert [fact["node"] for fact in facts(outcome.history, "infrastructure")] == ["m2"]
