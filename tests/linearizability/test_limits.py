"""Searches keep their limits of time and memory, even if steps are slow (in simulated time)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from checkers.linearizability import (
    Limits,
    NondeterministicModel,
    Operation,
    Result,
    Unknown,
    certify,
    check_operations,
    clock,
    model,
    search,
)
from checkers.linearizability.clock import Clock, LimitReachedError, tick
from checkers.linearizability.models.register import Read, Register, Write
from checkers.linearizability.search import Status, run_sliced
from harness.cli.check import limit as check_limit
from harness.cli.parser import Parser
from harness.errors import UsageError

Ops = list[Operation[Any, Any]]
LIMIT_S = 2.0
LATE_S = 1.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set all clocks to a time that advances only when a test changes it; return this time."""
    moment = [100.0]
    fake = SimpleNamespace(monotonic=lambda: moment[0])
    for module in (clock, search):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr("checkers.linearizability.proof.time", fake)
    return moment


class Slow(Register):
    """A register whose steps take 0.3 s."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(None)
        self._now = now

    def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
        self._now[0] += 0.3
        return super().step(state, input_, output)

    def decide(self, operations: Sequence[Operation[Any, Any]], /) -> None:
        del operations


class Exploding(NondeterministicModel[int, Write, None]):
    """A model in which each state has ten successors, and a step takes a millisecond."""

    def __init__(self, now: list[float]) -> None:
        self._now = now

    def init(self) -> Iterable[int]:
        return [0]

    def step(self, state: int, input_: Write, output: Unknown | None, /) -> Iterable[int]:
        del input_, output
        self._now[0] += 0.001
        return range(10 * state, 10 * state + 10)


def one_by_one(total: int) -> Ops:
    return [Operation(0, Write(n), 2 * n, None, 2 * n + 1, n) for n in range(total)]


@pytest.fixture(params=["0", "1"])
def _native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_NATIVE", request.param)


@pytest.mark.usefixtures("_native")
@pytest.mark.parametrize("make", [Slow, lambda now: Exploding(now).to_model()])
def test_time_is_kept_where_steps_are_slow(make, now):
    outcome = check_operations(make(now), one_by_one(12), timeout_s=LIMIT_S)
    assert outcome.result is Result.UNKNOWN
    assert "time limit" in outcome.reason
    assert now[0] <= 100 + LIMIT_S + LATE_S


@pytest.mark.usefixtures("_native")
def test_the_proof_keeps_the_time_of_the_check(now):
    operations = [*one_by_one(2), Operation(1, Read(), 9, 7, 10, 9)]
    outcome = check_operations(Slow(now), operations, timeout_s=LIMIT_S)
    assert outcome.result is Result.ILLEGAL
    proof = certify(Slow(now), operations, outcome)
    assert now[0] <= 100 + LIMIT_S + LATE_S
    assert proof is not None
    assert not proof.confirmed_by


def test_an_order_that_cannot_be_replayed_in_time_is_not_confirmed(now):
    operations = one_by_one(5)
    outcome = check_operations(Register(None), operations, timeout_s=LIMIT_S)
    assert outcome.result is Result.OK
    now[0] += LIMIT_S
    proof = certify(Slow(now), operations, outcome)
    assert proof is not None
    assert not proof.confirmed_by
    assert now[0] <= 100 + LIMIT_S + LATE_S


@pytest.mark.usefixtures("_native")
def test_memory_is_kept(now, monkeypatch):
    held = [50 << 20]

    class Hungry(Register):
        def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
            held[0] += 1 << 20
            now[0] += 0.06  # the search checks memory only at intervals
            return super().step(state, input_, output)

    monkeypatch.setattr(clock, "resident_bytes", lambda: held[0])
    outcome = check_operations(Hungry(None), one_by_one(90), limits=Limits(memory_mib=20))
    assert outcome.result is Result.UNKNOWN
    assert "memory limit of 20 MiB" in outcome.reason
    assert held[0] < 80 << 20


def test_memory_is_read_from_the_system():
    assert 1 << 20 < clock.resident_bytes() < 1 << 40


def test_a_clock_that_is_over_stays_so(now):
    limited = Clock(1.0)
    with limited.running():
        tick()
        now[0] += 1
        with pytest.raises(LimitReachedError):
            tick()
        now[0] -= 1
        with pytest.raises(LimitReachedError):
            tick()
    tick()


def test_where_a_search_stands_does_not_depend_on_slices(now):
    class Steps:
        steps = 0
        status = Status.RUNNING

        def run(self, budget: int) -> Status:
            now[0] += self.cost_s * budget
            self.steps += budget
            return self.status

        cost_s = 0.0

    for cost_s in (0.0, 0.001, 1.0):
        found = Steps()
        found.cost_s = cost_s
        assert run_sliced(found, 1_000, lambda: False) is Status.RUNNING
        assert found.steps == 1_000


def test_steps_are_limited_by_themselves_only_without_time():
    assert Limits().steps_max(None) == model.STEPS_MAX
    assert Limits().steps_max(5.0) > 10**15
    assert Limits(steps=7).steps_max(5.0) == Limits(steps=7).steps_max(None) == 7
    assert Limits(steps=7).share(0.5).steps == 3
    assert Limits().share(0.5).steps == model.STEPS_MAX // 2


def test_the_command_line_sets_the_limits_of_all_processes(monkeypatch):
    assert check_limit.MAX_STEPS_VARIABLE == model.STEPS_VARIABLE
    assert check_limit.MEMORY_VARIABLE == model.MEMORY_VARIABLE
    for name in (model.STEPS_VARIABLE, model.MEMORY_VARIABLE):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
    parser = Parser(prog="harness check")
    check_limit.add_check_limit(parser)
    parser.parse_args(["--max-steps", "123", "--memory", "45"])
    assert (Limits().steps, Limits().memory_mib) == (123, 45)


@pytest.mark.parametrize("flag", ["--max-steps", "--memory"])
@pytest.mark.parametrize("value", ["0", "-3", "1.5", "many"])
def test_invalid_limits_are_refused(flag, value):
    parser = Parser(prog="harness check")
    check_limit.add_check_limit(parser)
    with pytest.raises(UsageError):
        parser.parse_args([f"{flag}={value}"])
