"""The properties of a run's states that make two states equal or different."""

import pytest

from harness.case import Case
from harness.cluster import ClusterEvent
from harness.ops import HARNESS, NEMESIS, NS_PER_S, Op, OpType
from harness.search.states import KINDS_MAX, MOMENTS_MAX, Reached, StateWatch
from harness.soak import SeedJob, run_seed

TOY = Case(
    seed=3, target="toy-register", workload="register", time_limit_s=6.0, nemeses=("kill-random",)
)


class Story:
    """A writer that builds a run line by line; each line takes one ms."""

    def __init__(self):
        self.watch = StateWatch()
        self._lines = 0

    def op(self, process, kind, f, value=None, error=None):
        self._lines += 1
        op = Op(self._lines, self._lines * 1_000_000, process, OpType(kind), f, value, error)
        self.watch.on_op(op)
        return self

    def phase(self, name="chaos"):
        return self.op(HARNESS, "info", "phase", {"phase": name})

    def fault(self, action, fault="f1", kind="kill", targets=("n1",)):
        value = {"action": action, "fault": fault, "kind": kind, "targets": list(targets)}
        return self.op(NEMESIS, "info", "x", value)

    def event(self, node, kind, *, by_driver=False, **data):
        self._lines += 1
        now_ns = self._lines * 1_000_000
        event = ClusterEvent(now_ns + NS_PER_S, node, kind, data, by_driver=by_driver)
        self.watch.on_event(event, now_ns)
        return self

    @property
    def states(self):
        return set(self.watch.reached().states)


def roles(leader, *followers, group="g", term=1):
    story = Story().phase()
    story.event(leader, "leader", group=group, term=term)
    for node in followers:
        story.event(node, "follower", group=group, term=term)
    return story


def test_states_survive_packing():
    reached = roles("n1", "n2").watch.reached()
    assert list(reached.states) == sorted(set(reached.states))
    assert Reached("").states == ()


def test_names_of_nodes_and_random_ids_make_no_difference():
    assert roles("n1", "n2", "n3").states == roles("n3", "n1", "n2").states
    one, other = (roles("n1", "n2", group=name).states for name in ("ab12cd34", "00ff00ff"))
    assert one == other != roles("n1", "n2", group="named").states


@pytest.mark.parametrize(
    "more",
    [
        lambda story: story.event("n2", "candidate", group="g", term=2),
        lambda story: story.event("n2", "something-else"),
        lambda story: story.fault("inject"),
        lambda story: story.fault("inject", targets=()),
        lambda story: story.op(0, "invoke", "get").op(0, "ok", "get"),
        lambda story: story.op(HARNESS, "info", "live", {"ok": False}),
    ],
)
def test_events_reach_new_states(more):
    story = roles("n1", "n2")
    before = story.states
    assert more(story).states > before


def test_states_tell_terms_positions_and_lives_apart():
    def end(story):
        return story.op(0, "invoke", "get").op(0, "ok", "get").states

    seen = [
        end(roles("n1", "n2")),
        end(roles("n1").event("n2", "follower", group="g", term=0)),
        end(roles("n1", "n2").event("n1", "checkpoint", group="g", index=5)),
        end(roles("n1", "n2").event("n1", "checkpoint", group="g", index=50)),
        end(roles("n1", "n2").event("n2", "node-exited", by_driver=True)),
        end(roles("n1", "n2").fault("inject")),
    ]
    assert all(one != other for at, one in enumerate(seen) for other in seen[:at])


def test_a_healed_fault_is_no_longer_active():
    healed = roles("n1", "n2").fault("inject").fault("heal").op(0, "invoke", "get")
    calm = roles("n1", "n2").op(0, "invoke", "get").op(0, "ok", "get")
    active = roles("n1", "n2").fault("inject").op(0, "invoke", "get").op(0, "ok", "get")
    assert calm.states <= healed.op(0, "ok", "get").states
    assert not calm.states <= active.states


def test_moments_are_of_the_chaos_phase_and_few_per_kind():
    story = Story().event("n1", "early").phase("warm-up").phase("chaos")
    for _ in range(MOMENTS_MAX + 5):
        story.event("n1", "often")
    story.event("n1", "node-started", by_driver=True)
    story.phase("converge").event("n1", "late")
    moments = story.watch.reached().moments
    assert moments == {"often": [(n + 1) * 1_000_000 for n in range(MOMENTS_MAX)]}


def test_moments_of_the_rarest_kinds_are_kept():
    story = Story().phase()
    for number in range(KINDS_MAX + 1):
        story.event("n1", f"kind-{number}")
    story.event("n1", "kind-7")
    moments = story.watch.reached().moments
    assert len(moments) == KINDS_MAX
    assert "kind-7" not in moments


def test_observing_changes_nothing_in_a_run():
    job = {"case": TOY, "store": None, "name": "n", "run_prefix": ""}
    plain, seen = run_seed(SeedJob(**job)), run_seed(SeedJob(**job, observe=True))
    assert plain.digest == seen.digest
    assert plain.reached is None
    assert seen.reached == run_seed(SeedJob(**job, observe=True)).reached
    assert len(seen.reached.states) > 10
