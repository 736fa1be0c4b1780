"""The harness's own actions after the chaos phase, on a clock that the tests advance."""

import asyncio

from harness.ops import NS_PER_S, Attempt, OpType
from harness.plugins import Completion, Convergence, Request
from harness.run.heartbeat import Heartbeat
from harness.run.live_target import poll
from harness.run.probe import probe
from harness.run.recorder import Recorder


class Clock:
    """A clock that only advances when it is moved."""

    def __init__(self):
        self.now = 0

    def monotonic_ns(self):
        return self.now

    def pass_by(self, time_s):
        self.now += int(time_s * NS_PER_S)


def polled(*, looks_s, settles_after):
    """Poll with a bound of 50 s, while each inspection takes `looks_s`; return the outcome."""
    clock = Clock()

    async def look():
        clock.pass_by(looks_s)
        return Convergence(clock.now >= settles_after * NS_PER_S)

    state = asyncio.run(poll(look, "x", now_ns=clock.monotonic_ns, bound_s=50.0, every_s=0.0))
    return state.ok, clock.now / NS_PER_S


def test_nothing_is_open_before_a_look_that_began_after_the_bound_says_so():
    assert polled(looks_s=40.0, settles_after=30) == (True, 40.0)
    assert polled(looks_s=40.0, settles_after=90) == (True, 120.0)
    assert polled(looks_s=40.0, settles_after=999) == (False, 120.0)


def gaps(*, before_stop_s):
    clock = Clock()
    recorder = Recorder(clock)

    async def main():
        heartbeat = Heartbeat(recorder)
        heartbeat.start()
        clock.pass_by(before_stop_s)
        heartbeat.stop()

    asyncio.run(main())
    return [op.value for op in recorder.history().facts("heartbeat-gap")]


def test_a_gap_at_the_very_end_is_reported():
    assert gaps(before_stop_s=0.9) == []
    assert gaps(before_stop_s=7.0) == [{"from_s": 0.0, "to_s": 7.0, "gap_s": 7.0}]


class Asking:
    """A driver whose operations take 2 s and fail, and which ask the nodes one after another."""

    def __init__(self, clock, nodes):
        self._clock = clock
        self._nodes = iter(nodes)
        self.serves = lambda completion: completion.type is OpType.OK

    async def invoke(self, request):
        node = next(self._nodes)
        self._clock.pass_by(2.0)
        return Completion(OpType.FAIL, None, "DOWN", None, (Attempt(node, 0, 1, "DOWN"),))


def test_requests_sent_before_the_bound_do_not_count_as_late(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("harness.run.probe.POLL_S", 0.0)
    result = asyncio.run(
        probe(
            Asking(clock, ["m1", "m2", "m3", "m4"]),
            lambda attempt, retry: [Request("get"), Request("list")],
            now_ns=clock.monotonic_ns,
            deadline_ns=4 * NS_PER_S,
            late_tries_max=2,
        )
    )
    assert result.missing == ["get", "list"]
    assert result.asked == ["m1", "m2", "m3", "m4"]
    assert result.asked_late == ["m3", "m4"]
