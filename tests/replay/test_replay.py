"""A replay equals the original run. Stops and inspections change nothing."""

import itertools
import re

import msgspec
import pytest

from harness.errors import UsageError
from harness.ops import History, OpType
from harness.replay.gather import look
from harness.replay.moments import AtTime, End, Steps, parse_until
from harness.replay.replay import Replay
from tests.replay.conftest import CASE, TAKEN_OVER, changed, state_of


def test_a_replay_without_a_stop_is_the_plain_run(plain):
    # a stored run with one op more shows that the replay notices where it ends
    ops = list(plain.history)
    longer = History([*ops, msgspec.structs.replace(ops[-1], index=len(ops))])
    ended = Replay(CASE, longer).run(End(), lambda watch, stop: End())
    assert (ended.trace_digest, ended.whole, ended.stops) == (plain.trace_digest, True, 0)
    assert ended.differs_at == len(ops)


@pytest.mark.parametrize("first", ["op=100", "time=3", TAKEN_OVER])
def test_stops_and_looks_change_nothing(first, plain):
    replay = Replay(CASE, plain.history)
    orders = [Steps(3), Steps(2, "m2"), parse_until("event=checkpoint"), AtTime(6 * 10**9), End()]

    def on_stop(watch, stop):
        look(replay.plan, watch, stop)
        return orders[watch.stops - 1]

    ended = replay.run(parse_until(first), on_stop)
    assert ended.stops == len(orders)
    assert ended.trace_digest == plain.trace_digest
    assert ended.differs_at is None


def test_a_stop_at_an_op_comes_right_after_it(plain, stopped):
    op = next(op for op in plain.history if op.is_client and op.type is OpType.INVOKE)
    state = stopped(f"op={op.index}")
    assert state.moment.time_ns == op.time
    assert state.moment.within
    assert [each.index for each in state.operations] == [op.index]
    assert state.last_ops[-1].startswith(f"op {op.index}: ")


def test_a_stop_at_a_time_comes_before_the_first_event_there(stopped):
    state, later = stopped("time=3"), stopped("time=3.0000001")
    assert state.moment.time_s >= 3
    assert not state.moment.within
    assert later.moment.events >= state.moment.events


def test_a_stop_at_an_event_is_in_the_code_that_announces_it(stopped):
    state = stopped(TAKEN_OVER)
    assert state.moment.node.startswith("m")
    assert '"term":2' in state.moment.what
    assert state.moment.stack[-1].startswith("targets.kudu.consensus.")
    assert not any("harness.replay" in place for place in state.moment.stack)


def test_events_are_counted(stopped):
    first, second = stopped("event=checkpoint"), stopped("event=checkpoint:2")
    assert first.moment.events < second.moment.events


def test_a_step_is_one_event():
    events = []

    def on_stop(watch, stop):
        events.append(watch.deployment.world.events)
        return Steps(1) if len(events) < 5 else End()

    Replay(CASE).run(parse_until("time=3"), on_stop)
    assert [after - before for before, after in itertools.pairwise(events)] == [1, 1, 1, 1]


def test_steps_of_a_node_end_after_its_event():
    lines = []

    def on_stop(watch, stop):
        lines.append(list(watch.lines))
        return Steps(2, "m1") if len(lines) < 3 else End()

    Replay(CASE).run(parse_until("time=3"), on_stop)
    for said in lines[1:]:
        # the effects of an event are indented below the event
        assert sum(re.match(r"[\d.]+ m1 {5}\S", line) is not None for line in said) == 2


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ("op=999999", "the last op"),
        ("time=9999", "the run ended at"),
        ("event=no-such", "no node announced"),
        ("event=leader,term=99", "term="),
    ],
)
def test_a_moment_that_never_comes_is_an_error(moment, reason):
    with pytest.raises(UsageError, match=reason):
        state_of(CASE, moment)


def test_a_difference_from_the_stored_run_is_found(plain):
    replay = Replay(changed(CASE, rate=29.0), plain.history)
    with pytest.raises(UsageError, match="differs from the stored run"):
        replay.run(parse_until("op=999999"), lambda watch, stop: End())
    assert replay.differs_at is not None
    assert plain.history[replay.differs_at].time > 0


def test_the_same_moment_is_the_same_state(stopped):
    assert state_of(CASE, TAKEN_OVER).sha256() == stopped(TAKEN_OVER).sha256()


def test_another_seed_is_another_state(stopped):
    assert state_of(changed(CASE, seed=8), "time=3").sha256() != stopped("time=3").sha256()
