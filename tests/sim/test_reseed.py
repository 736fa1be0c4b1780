"""The knobs `reseed_at_s` and `reseed` leave the past unchanged, and change the future."""

import itertools
import random

import pytest

from harness.case import Case, Fault, stream
from harness.environments.sim import SimEnvironment
from harness.environments.sim.knobs import parse_knobs
from harness.environments.sim.streams import Streams
from harness.errors import UsageError
from harness.ops import NS_PER_S, History, ScheduledOp
from harness.plan.planning import plan_case
from harness.run.phases import conduct
from harness.timeline import faults_of, phases_of
from tests.sim.test_replay import gossip_run

AT_S = 7.3
FAULTS = (Fault("f1", "kill-leader", 3 * NS_PER_S, 2 * NS_PER_S),)


def recorded(tmp_path, name, *, ops=None, **knobs):
    trace = tmp_path / name
    case = Case(
        seed=5,
        nemeses=("kill-leader",),
        faults=FAULTS,
        ops=ops,
        time_limit_s=10.0,
        knobs={"trace": str(trace), **knobs},
    )
    environment = SimEnvironment()
    outcome = conduct(plan_case(case, environment), environment, run_id=name, folder=None)
    return list(outcome.history), trace.read_text().splitlines()


def split(lines, at_s=AT_S):
    before = list(itertools.takewhile(lambda line: float(line.split()[0]) < at_s, lines))
    return before, lines[len(before) :]


def test_streams_switch_in_place():
    streams = Streams(3)
    early = streams.open("a")
    assert early.random() == stream(3, "a").random()
    draw = early.random  # hot paths keep such bound methods
    streams.switch(1)
    late, adopted = streams.open("b"), streams.adopt("c", random.Random(0))
    first = [draw(), late.random(), adopted.random()]
    assert early.random() != stream(3, "a").random()
    streams.switch(1)
    assert [early.random(), late.random(), adopted.random()] == first
    streams.switch(2)
    assert [early.random(), late.random(), adopted.random()] != first


@pytest.mark.slow
def test_everything_before_the_switch_is_equal_and_the_rest_differs(tmp_path):
    ops, lines = recorded(tmp_path, "plain")
    first, one = recorded(tmp_path, "one", reseed_at_s=AT_S, reseed=1)
    second, two = recorded(tmp_path, "two", reseed_at_s=AT_S, reseed=2)
    again, three = recorded(tmp_path, "again", reseed_at_s=AT_S, reseed=1)
    assert (again, three) == (first, one)
    past, future = split(lines)
    assert len(past) > 1000
    assert split(one)[0] == split(two)[0] == past
    assert len({tuple(split(each)[1]) for each in (lines, one, two)}) == 3
    until_ns = int(AT_S * NS_PER_S)
    histories = [[op for op in each if op.time < until_ns] for each in (ops, first, second)]
    assert histories[0] == histories[1] == histories[2]
    assert len({tuple(map(repr, each)) for each in (ops, first, second)}) == 3
    assert future


@pytest.mark.slow
def test_planned_faults_and_operations_stay_as_planned(tmp_path):
    planned = tuple(
        ScheduledOp(
            number * NS_PER_S, number, "create", {"name": f"t{number}", "nonce": f"n{number}"}
        )
        for number in range(8)
    )
    runs = [
        History(recorded(tmp_path, f"r{n}", ops=planned, reseed_at_s=0.0, reseed=n)[0])
        for n in (1, 2)
    ]
    assert list(runs[0]) != list(runs[1])
    for history in runs:
        (begin_ns,) = (time for time, name in phases_of(history) if name == "chaos")
        invoked = [pair.invoke for pair in history.pairs if pair.invoke.f == "create"]
        assert [op.value for op in invoked[: len(planned)]] == [op.value for op in planned]
        (fault,) = faults_of(history)
        assert abs(fault.start - begin_ns - FAULTS[0].at_ns) < NS_PER_S / 10


def test_the_number_of_the_streams_decides_the_future():
    first = gossip_run(1, reseed_at_s=1.0, reseed=1)
    assert first == gossip_run(1, reseed_at_s=1.0, reseed=1)
    assert len({first, gossip_run(1), gossip_run(1, reseed_at_s=1.0, reseed=2)}) == 3


@pytest.mark.parametrize(
    "knobs", [{"reseed": 1}, {"reseed_at_s": -1.0}, {"reseed_at_s": 1.0, "reseed": -1}]
)
def test_wrong_knobs_are_refused(knobs):
    with pytest.raises(UsageError):
        parse_knobs(knobs)
