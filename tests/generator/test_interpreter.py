"""The interpreter in virtual time, with clients that misbehave."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InfrastructureError, InternalError, TargetError, UsageError
from harness.generator import (
    Draft,
    Pending,
    delay,
    limit,
    mix,
    phases,
    sleep,
    stagger,
    synchronize,
    time_limit,
    timed_ops,
)
from harness.ops import Attempt, History, OpType, ScheduledOp
from harness.plugins import Completion
from harness.run.interpreter import GUARD_MARGIN_S, IDLE_S_MAX, POLL_S
from harness.run.recorder import Recorder
from tests.generator.shapes import UntilOk, draw, forever, names, numbered
from tests.generator.virtual import BEGIN_NS, World, answering
from tests.support.virtual import run
from tests.tiers import examples

MS = 1_000_000
INVOKE, OK, FAIL, INFO = OpType.INVOKE, OpType.OK, OpType.FAIL, OpType.INFO


def lines(ops):
    return [(op.time // MS, op.process, op.type, op.value) for op in ops]


def test_operations_run_on_their_threads_and_clients_are_closed():
    world = World(answering())

    assert lines(world.run(numbered("a", 3))) == [
        (0, 0, INVOKE, 0),
        (0, 1, INVOKE, 1),
        (10, 0, OK, 0),
        (10, 1, OK, 1),
        (10, 0, INVOKE, 2),
        (20, 0, OK, 2),
    ]
    assert world.left is None
    assert [0, 1] == world.opened == world.closed
    assert all(task.done() for task in world.env.tasks)


def test_operations_begin_when_they_are_due():
    world = World(answering(latency_s=0.001))
    ops = world.run(limit(50, delay(0.01, forever("a"))))

    assert [10 * n for n in range(50)] == [op.time // MS for op in ops if op.type is INVOKE]


def test_the_end_waits_for_operations_in_flight():
    ops = World(answering(latency_s=4.0)).run(Draft("a"))

    assert [(op.time // MS, op.type) for op in ops] == [(0, INVOKE), (4000, OK)]


def test_fast_clients_are_not_made_concurrent_by_the_driver():
    ops = World(answering(latency_s=0)).run(limit(20, forever("a")), concurrency=5)

    assert [op.type for op in ops] == [INVOKE, OK] * 20


@pytest.mark.parametrize(("answer", "clients"), [(INFO, [0, 1, 2]), (FAIL, [0])])
def test_only_after_info_the_process_is_retired_and_its_client_replaced(answer, clients):
    world = World(answering(answer))
    ops = world.run(limit(3, forever("a")), concurrency=1)

    assert sorted({op.process for op in ops}) == clients == world.opened == world.closed


def test_a_client_that_does_not_open_has_done_nothing():
    world = World(answering())
    tries = []

    def open_client(process):
        tries.append(process)
        if len(tries) < 3:
            raise ConnectionRefusedError("no server listens")
        return world.open_client(process)

    ops = world.run(limit(3, forever("a")), concurrency=1, open_client=open_client)

    assert [op.type for op in ops if op.type is not INVOKE] == [FAIL, FAIL, OK]
    assert tries == [0, 0, 0]
    assert ops[1].error == "client did not open: ConnectionRefusedError: no server listens"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, "client crashed: it returned "),
        ("ok", "client crashed: it returned "),
        (Completion(INVOKE), "client crashed: it returned "),
        (KeyError("lost"), "client crashed: KeyError: 'lost'"),
        (asyncio.CancelledError(), "client crashed: cancelled from inside"),
    ],
)
def test_a_client_that_crashes_may_have_done_anything(answer, error):
    async def behave(_client, _request):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    world = World(behave)
    ops = world.run(numbered("a", 2), concurrency=1)

    assert [(op.type, op.value) for op in ops[1::2]] == [(INFO, 0), (INFO, 1)]
    assert ops[1].error.startswith(error)
    assert [0, 1] == world.opened == world.closed


def test_a_hanging_client_is_cancelled_and_its_thread_goes_on():
    cancelled = []

    async def behave(client, request):
        if client.process == 0:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(asyncio.get_running_loop().time())
                raise
        return Completion(OK, request.value)

    world = World(behave, op_timeout_s=2.0)
    ops = world.run(numbered("a", 2), concurrency=1)

    assert lines(ops) == [
        (0, 0, INVOKE, 0),
        (3000, 0, INFO, 0),
        (3000, 1, INVOKE, 1),
        (3000, 1, OK, 1),
    ]
    assert cancelled == [2.0 + GUARD_MARGIN_S]
    assert ops[1].error == "client hung: no outcome after 3 s, against a timeout of 2 s"
    assert [0, 1] == world.opened == world.closed


def test_a_client_that_ignores_its_cancellation_is_left_behind():
    release = []

    async def behave(_client, request):
        event = asyncio.Event()
        release.append(event)
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue
        return Completion(OK, request.value)

    async def main(world):
        await world.interpret(Draft("a"))
        for event in release:
            event.set()

    world = World(behave)
    run(main(world))

    # The late answer must not be a second completion.
    assert [op.type for op in world.ops] == [INVOKE, INFO]


def test_an_answer_just_before_the_guard_counts():
    ops = World(answering(latency_s=5.999)).run(Draft("a"))

    assert OK is ops[1].type


def test_attempts_are_in_the_time_of_the_run():
    async def behave(_client, _request):
        now_ns = BEGIN_NS + 7
        return Completion(
            FAIL, error="E: x", node="m2", attempts=(Attempt("m1", now_ns, now_ns + 5, "ok"),)
        )

    ops = World(behave).run(Draft("a"))

    assert (Attempt("m1", 7, 12, "ok"),) == ops[1].attempts
    assert (ops[1].error, ops[1].node) == ("E: x", "m2")


# --- stopping --------------------------------------------------------------------------------


def stopped_after(world, seconds, generator, **options):
    async def main():
        asyncio.get_running_loop().call_later(seconds, world.stop.set)
        await world.interpret(generator, **options)
        return asyncio.get_running_loop().time()

    return run(main())


def test_stop_begins_nothing_new_and_lets_the_rest_end():
    world = World(answering(latency_s=1.0))

    assert stopped_after(world, 2.5, forever("a")) == 3.0
    assert [op.time // MS for op in world.ops if op.type is INVOKE] == [
        0,
        0,
        1000,
        1000,
        2000,
        2000,
    ]
    assert len(world.ops) == 12
    assert world.left is not None


@pytest.mark.parametrize(
    "generator",
    [Draft("a", time_ns=3600 * 10**9), [sleep(3600), synchronize(Draft("a"))]],
    ids=["future", "sleep"],
)
def test_stop_does_not_wait_for_pending_operations(generator):
    world = World(answering())

    assert pytest.approx(stopped_after(world, 2.5, generator)) == 2.5
    assert world.ops == []


def test_stop_before_the_start_does_nothing():
    world = World(answering())
    world.stop.set()

    assert world.run(forever("a")) == []


def test_cancellation_records_open_operations():
    world = World(answering(latency_s=3.0))
    processes = [0, 1]

    async def main():
        task = asyncio.ensure_future(world.interpret(forever("a"), processes=processes))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())

    assert [op.type for op in world.ops] == [INVOKE, INVOKE, INFO, INFO]
    assert world.ops[2].error == "the run was cancelled before the operation ended"
    assert processes == [2, 3]
    assert all(task.done() for task in world.env.tasks)


# --- drafts that are not operations ----------------------------------------------------------


def test_sleep_is_not_in_the_history():
    ops = World(answering()).run([sleep(0.5), synchronize(Draft("a"))])

    assert lines(ops) == [(500, 1, INVOKE, None), (510, 1, OK, None)]


# --- generators that wait, and mistakes ------------------------------------------------------


def test_generators_learn_of_completions():
    calls = []

    async def behave(_client, request):
        calls.append(request)
        await asyncio.sleep(0.01)
        return Completion(OK if len(calls) == 5 else FAIL, request.value)

    World(behave).run(UntilOk(forever("a")), concurrency=1)

    assert len(calls) == 5


def test_phases_wait_for_one_another():
    ops = World(answering(latency_s=0.5)).run(phases(numbered("a", 3), Draft("b")))

    assert [(op.time // MS, op.f) for op in ops if op.type is INVOKE] == [
        (0, "a"),
        (0, "a"),
        (500, "a"),
        (1000, "b"),
    ]


class After:
    """A generator that is pending until a time at which no event wakes the interpreter."""

    def __init__(self, time_ns):
        self.time_ns = time_ns

    def op(self, ctx):
        return Pending(self) if ctx.time_ns < self.time_ns else None

    def update(self, ctx, event):
        return self


def test_a_generator_that_is_pending_is_asked_again():
    ops = World(answering()).run([After(200 * MS), Draft("a")])

    assert 200 <= ops[0].time // MS <= 200 + POLL_S * 1000


def test_a_generator_that_stays_pending_is_an_error():
    world = World(answering())

    with pytest.raises(InternalError, match=f"pending for {IDLE_S_MAX:g} s while nothing"):
        world.run([Draft("a"), After(10**18)])
    assert [op.type for op in world.ops] == [INVOKE, OK]


def test_a_generator_that_raises_ends_the_run_with_its_operations_recorded():
    def broken(ctx):
        if ctx.time_ns > 5 * MS:
            raise ValueError("no more names")
        return Draft("a")

    async def behave(client, request):
        await asyncio.sleep(0.01 if client.process == 0 else 2.0)
        return Completion(OK, request.value)

    world = World(behave)
    with pytest.raises(TargetError, match="no more names"):
        world.run(broken)

    assert [op.type for op in world.ops] == [INVOKE, INVOKE, OK, INFO]


class FullDisk(Recorder):
    def record(self, process, kind, f, value=None, *, error=None, node=None, attempts=()):
        if len(self.history()) == 3:
            raise InfrastructureError("no space left")
        return super().record(process, kind, f, value, error=error, node=node, attempts=attempts)


def test_a_record_that_cannot_be_written_ends_the_run():
    async def main(world):
        world.recorder = FullDisk(world.env.clock)
        await world.interpret(forever("a"))

    world = World(answering())
    with pytest.raises(InfrastructureError, match="no space left"):
        run(main(world))
    assert all(task.done() for task in world.env.tasks)


def test_a_client_that_does_not_close_holds_up_nothing():
    world = World(answering())

    class Sticky:
        async def invoke(self, request, *, timeout_s):
            return Completion(INFO, request.value)

        async def close(self):
            await asyncio.sleep(3600)

    ops = world.run(numbered("a", 2), concurrency=1, open_client=lambda _process: Sticky())

    assert [op.type for op in ops if op.is_client] == [INVOKE, INFO, INVOKE, INFO]
    assert [op.value["message"] for op in ops if op.f == "log"] == [
        "a client did not close: CancelledError"
    ] * 2


# --- several interpretations, replay, determinism --------------------------------------------


def test_processes_go_on_from_one_interpretation_to_the_next():
    processes = [0, 1]

    async def main(world):
        await world.interpret(numbered("a", 2), processes=processes)
        await world.interpret(numbered("b", 2), processes=processes)

    world = World(answering(INFO))
    run(main(world))

    assert [op.process for op in world.ops if op.type is INVOKE] == [0, 1, 2, 3]
    assert processes == [4, 5]


def test_the_generators_of_a_later_interpretation_start_at_its_time():
    async def main(world):
        await world.interpret(Draft("a"))
        await asyncio.sleep(10)
        await world.interpret(time_limit(0.5, delay(0.4, forever("b"))))

    world = World(answering())
    run(main(world))

    assert [op.time // MS for op in world.ops if (op.f, op.type) == ("b", INVOKE)] == [
        10_010,
        10_410,
    ]


def test_a_recorded_schedule_is_replayed():
    schedule = [ScheduledOp(0, 0, "a"), ScheduledOp(5 * MS, 0, "b"), ScheduledOp(7 * MS, 3, "c")]
    ops = World(answering()).run(timed_ops(schedule))

    assert [(op.time // MS, op.process, op.f) for op in ops if op.type is INVOKE] == [
        (0, 0, "a"),
        (7, 1, "c"),
        (10, 0, "b"),
    ]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_every_run_is_a_valid_history_and_repeats(seed, concurrency):
    def run():
        rng = random.Random(seed)

        async def behave(_client, request):
            fate = rng.randrange(12)
            await asyncio.sleep(rng.randrange(4) * 0.02)
            if fate == 0:
                raise RuntimeError("crash")
            if fate == 1:
                await asyncio.sleep(3600)
            return Completion((OK, FAIL, INFO, OK)[fate % 4], request.value)

        generator = stagger(0.01, mix(draw, limit(9, forever("b"))))
        return World(behave, op_timeout_s=0.5).run(
            phases(time_limit(1, generator), numbered("c", 4)), concurrency=concurrency
        )

    ops = run()

    # `World.run` builds a `History`, which checks the use of processes.
    assert all(pair.completion is not None for pair in History(ops).pairs)
    assert names(ops)[-1] == "c"
    assert ops == run()


@pytest.mark.parametrize(("concurrency", "op_timeout_s"), [(0, 1.0), (1, 0.0)])
def test_impossible_arguments_are_errors(concurrency, op_timeout_s):
    world = World(answering(), op_timeout_s=op_timeout_s)
    with pytest.raises(UsageError):
        world.run(Draft("a"), concurrency=concurrency)
