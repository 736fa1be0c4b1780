"""The native core handles times, values and errors, and can be switched off."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from checkers.linearizability import (
    Model,
    ModelError,
    Operation,
    Result,
    check_operations,
)
from checkers.linearizability import native as adapter
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.native import (
    NativeProblem,
    depth_first,
    is_native,
    native_status,
    problem_of,
)
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import Status

needs_native = pytest.mark.skipif(not is_native(), reason=native_status())


def test_the_switch_turns_it_off_and_says_so(monkeypatch):
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert not is_native()
    assert type(problem_of(Register(), [])) is Problem
    assert "\n" not in native_status()


@needs_native
def test_the_status_names_the_version_and_the_switch(monkeypatch):
    assert native_status().endswith(", in use")
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert native_status().endswith(", switched off by HARNESS_NATIVE=0")


def test_without_the_extension_one_line_gives_the_fix(monkeypatch):
    monkeypatch.setattr(adapter, "_EXTENSION", None)
    monkeypatch.setattr(adapter, "_MISSING", "No module named 'checkers._native'")
    assert not is_native()
    line = native_status()
    assert "absent (No module named 'checkers._native')" in line
    assert "install Rust" in line
    assert "\n" not in line
    operations = [Operation(0, Write(1), 0, None, 1), Operation(0, Read(), 2, 1, 3)]
    assert check_operations(Register(), operations).result is Result.OK


@pytest.mark.parametrize("interface", [{}, {"INTERFACE": adapter.INTERFACE - 1}])
def test_a_core_of_another_interface_is_not_used(monkeypatch, interface):
    monkeypatch.setitem(sys.modules, "checkers._native", SimpleNamespace(**interface))
    extension, reason = adapter._load()
    assert extension is None
    assert f"not {adapter.INTERFACE}" in reason


@needs_native
@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ((0, 5), (5, 9), Result.OK),  # intervals are closed, so they overlap
        ((0, 5), (6, 9), Result.ILLEGAL),
        ((0.0, 0.5), (0.5, 9.0), Result.OK),
        ((0.0, 0.5), (0.75, 9.0), Result.ILLEGAL),
        ((-2.5, -1.5), (-1.0, 9), Result.ILLEGAL),
        ((-2.5, -0.0), (0, 9), Result.OK),
        ((-3, -2), (-1, 9), Result.ILLEGAL),
        ((2**60, 2**60 + 1), (2**60 + 2, 2**60 + 3), Result.ILLEGAL),
        ((2**60, 2**60 + 1), (2**60 + 1, 2**60 + 3), Result.OK),
        ((float("-inf"), 0.0), (1.0, float("inf")), Result.ILLEGAL),
    ],
)
def test_times_of_all_kinds_are_ordered_as_python_orders_them(first, second, result, monkeypatch):
    operations = [
        Operation(0, Write(1), first[0], None, first[1]),
        Operation(1, Read(), second[0], 0, second[1]),
    ]
    assert isinstance(problem_of(Register(0), operations), NativeProblem)
    assert check_operations(Register(0), operations).result is result
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert check_operations(Register(0), operations).result is result


@needs_native
@pytest.mark.parametrize(
    "operations",
    [
        [Operation(0, Read(), 0, True, 1)],  # True equals the initial 1 in Python
        [Operation(0, Read(), 0, 1.0, 1)],
        [Operation(0, Read(), 0, "1", 1)],
        [Operation(0, Cas(1, 2), 0, True, 1), Operation(0, Read(), 2, 2, 3)],
        [Operation(0, Cas(1, 2), 0, 1, 1), Operation(0, Read(), 2, 2, 3)],  # 1 is not a boolean
        [Operation(0, Cas(2, 2), 0, False, 1)],
        [Operation(0, Write(float("nan")), 0, None, 1), Operation(0, Read(), 2, float("nan"), 3)],
        [Operation(0, Write(None), 0, None, 1), Operation(0, Read(), 2, None, 3)],
    ],
)
def test_a_register_compares_values_as_python_does(operations, monkeypatch):
    ours = check_operations(Register(1), operations)
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert check_operations(Register(1), operations) == ours


@needs_native
def test_only_the_register_itself_is_stepped_natively():
    class Sticky(Register):
        def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
            return super().step(state, input_, output) if state == 0 else (False, state)

    operations = [Operation(0, Write(n), 2 * n, None, 2 * n + 1) for n in (1, 2)]
    problem = problem_of(Register(0), operations)
    assert isinstance(problem, NativeProblem)
    assert problem.core.is_native_model
    other = problem_of(Sticky(0), operations)
    assert isinstance(other, NativeProblem)
    assert not other.core.is_native_model
    assert check_operations(Sticky(0), operations).result is Result.ILLEGAL


class Counted(Model[int, str, int | None]):
    """A model that counts its steps."""

    def __init__(self) -> None:
        self.asked = 0

    def init(self) -> int:
        return 0

    def step(self, state: int, input_: str, output: Any, /) -> tuple[bool, int]:
        self.asked += 1
        return (True, (state + 1) % 3) if input_ == "next" else (output == state, state)


@needs_native
def test_a_python_model_is_asked_once_per_state_and_operation_class():
    model = Counted()
    operations = [Operation(0, "next", 2 * n, None, 2 * n + 1) for n in range(300)]
    operations.append(Operation(0, "see", 1000, 0, 1001))
    problem = problem_of(model, operations)
    assert isinstance(problem, NativeProblem)
    assert depth_first(problem, lean=False, configurations_max=10**6).run(10**6) is Status.FOUND
    assert model.asked == problem.core.model_calls == 4


@needs_native
def test_unhashable_inputs_are_classes_of_their_own(monkeypatch):
    class Bag(Model[tuple[int, ...], list[int], Any]):
        def init(self) -> tuple[int, ...]:
            return ()

        def step(self, state: Any, input_: list[int], output: Any, /) -> tuple[bool, Any]:
            after = tuple(sorted((*state, *input_)))
            return output is None or len(after) == output, after

    operations = [Operation(0, [1], n, None if n < 3 else 4, 10 + n) for n in range(4)]
    ours = check_operations(Bag(), operations)
    assert ours.result is Result.OK
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert check_operations(Bag(), operations) == ours


class Liar(Model[int, str, Any]):
    def init(self) -> int:
        return 0

    def step(self, state: int, input_: str, output: Any, /) -> tuple[bool, int]:
        return True, state + 1

    def read_only(self, input_: str, output: Any, /) -> bool:
        return True


@needs_native
def test_a_read_that_changes_the_state_is_the_same_error(monkeypatch):
    operations = [Operation(0, "look", 0, None, 1)]
    with pytest.raises(ModelError) as ours:
        check_operations(Liar(), operations)
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    with pytest.raises(ModelError) as pure:
        check_operations(Liar(), operations)
    assert str(ours.value) == str(pure.value)


@needs_native
def test_an_exception_in_the_model_comes_through():
    class Broken(Liar):
        def step(self, state: int, input_: str, output: Any, /) -> tuple[bool, int]:
            raise ZeroDivisionError(input_)

    with pytest.raises(ZeroDivisionError, match="look"):
        check_operations(Broken(), [Operation(0, "look", 0, None, 1)])


@needs_native
def test_numbers_out_of_range_are_errors_not_crashes():
    problem = problem_of(Register(0), [Operation(0, Write(1), 0, None, 1)])
    assert isinstance(problem, NativeProblem)
    with pytest.raises(IndexError):
        problem.core.step(99, 0)
    with pytest.raises(IndexError):
        problem.core.step(0, 99)
    with pytest.raises(IndexError):
        problem.core.opens(1, False)
    with pytest.raises(IndexError):
        problem.replay([7])


@needs_native
def test_searching_a_register_leaves_the_interpreter_to_other_threads():
    operations = [Operation(n, Write(n), 0, None, 100 + n) for n in range(40)]
    operations.append(Operation(99, Read(), 0, -1, 50))

    def met() -> bool:
        """Whether this thread ran during the search, which needs two free processors."""
        problem = problem_of(Register(0), operations)
        search = depth_first(problem, lean=False, configurations_max=10**7)
        thread = threading.Thread(target=search.run, args=(1_500_000,))
        thread.start()
        busy = False
        while thread.is_alive() and not busy:
            try:
                problem.replay([])
            except RuntimeError as error:
                # "already borrowed" means that the search was still running
                busy = "borrowed" in str(error)
        thread.join()
        assert search.status is Status.RUNNING
        return busy

    assert any(met() for _ in range(20))
