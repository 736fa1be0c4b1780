"""What nodes hold at the end of a run is a fact of its history, where somebody can tell."""

from harness.errors import InfrastructureError
from harness.registry import load_plugin
from tests.run.test_conduct_sim import Behaving, kudu, run, toy


class Measuring:
    """The simulation, where memory is what a test says."""

    def __init__(self, held):
        self._sim = load_plugin("environments", "sim")
        self._held = held

    def execute(self, plan, main):
        async def memory_bytes(node):
            held = self._held.get(node)
            if isinstance(held, Exception):
                raise held
            return held

        async def measured(session):
            cluster = Behaving(session.cluster, memory_bytes=memory_bytes)
            return await main(Behaving(session, cluster=cluster))

        return self._sim.execute(plan, measured)


def facts(history, f):
    return [op.value for op in history.facts(f)]


def test_a_simulation_has_none():
    _, outcome = run(toy(12, time_limit_s=3.0))
    assert facts(outcome.history, "memory") == []


def test_one_that_cannot_be_measured_costs_nothing_but_its_number():
    broken = InfrastructureError("the engine was away")
    environment = Measuring({"m1": 5 << 20, "m2": broken})
    _, outcome = run(kudu(3, time_limit_s=3.0), environment=environment)
    (measured,) = facts(outcome.history, "memory")
    assert {node for node, held in measured["bytes"].items() if held} == {"m1"}
    assert {"m2", "m3", "t1"} <= measured["bytes"].keys()
    assert [fact["node"] for fact in facts(outcome.history, "infrastructure")] == ["m2"]
