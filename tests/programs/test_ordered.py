"""Sets in programs iterate in insertion order, no matter which operator created them."""

import builtins
import typing

import pytest

from harness.environments.sim.programs.ordered import NAMES, OrderedSet, compile_ordered

WORDS = "'delta', 'alpha', 'echo', 'bravo', 'charlie'"


def run(source):
    scope = {"__builtins__": vars(builtins) | NAMES}
    exec(compile_ordered(source.encode(), "program.py"), scope)
    return scope


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("d.keys() | e.keys()", ["delta", "alpha", "echo", "bravo", "charlie", "foxtrot"]),
        ("d.keys() & ['charlie', 'alpha', 'x']", ["alpha", "charlie"]),
        ("d.keys() - e.keys()", ["delta", "echo", "bravo", "charlie"]),
        ("d.keys() ^ e.keys()", ["delta", "echo", "bravo", "charlie", "foxtrot"]),
        ("e.keys() | {*d}", ["alpha", "foxtrot", "delta", "echo", "bravo", "charlie"]),
        ("[key for key, _ in d.items() & {('bravo', 1), ('echo', 1)}]", ["echo", "bravo"]),
    ],
)
def test_operators_on_views_keep_the_order_of_insertion(expression, expected):
    scope = run(
        f"d = dict.fromkeys([{WORDS}], 1)\ne = dict.fromkeys(['alpha', 'foxtrot'], 2)\n"
        f"result = list({expression})\n"
    )
    assert scope["result"] == expected


def test_an_assignment_in_place_makes_an_ordered_set_of_a_view():
    scope = run(f"v = dict.fromkeys([{WORDS}]).keys()\nv -= {{'alpha'}}\nn = 7\nm = 4\nn ^= m\n")
    assert type(scope["v"]) is OrderedSet
    assert list(scope["v"]) == ["delta", "echo", "bravo", "charlie"]
    assert scope["n"] == 3


def test_sets_that_are_changed_in_place_stay_the_same_object():
    scope = run("s = {1, 2}\nt = s\nother = {3}\ns |= other\n")
    assert scope["t"] is scope["s"]
    assert list(scope["t"]) == [1, 2, 3]


def test_operators_on_types_and_in_annotations_mean_what_they_mean():
    scope = run(
        "from __future__ import annotations\n"
        "def f(a: int | None, *b: str | None) -> dict | list: return a\n"
        "x: int | str = 1\n"
    )
    hints = typing.get_type_hints(scope["f"], scope)
    assert hints == {"a": int | None, "b": str | None, "return": dict | list}
    assert scope["f"].__annotations__["a"] == "int | None"
    assert scope["__annotations__"] == {"x": "int | str"}
    assert run("T = int | None\nA = 6\nB = A & 3\n")["B"] == 2
