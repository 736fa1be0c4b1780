"""The random order of tests is repeatable, and keeps the tests of a module together."""

import itertools
from types import SimpleNamespace

from tests.random_order import shuffle

IDS = [
    f"tests/{folder}/test_{module}.py::test_{n}"
    for folder in "abcd"
    for module in "xyz"
    for n in range(6)
]


def ordered(seed, ids=IDS):
    items = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    shuffle(items, seed)
    return [item.nodeid for item in items]


def test_a_seed_is_an_order_for_every_collector():
    assert ordered(5) == ordered(5, IDS[::-1])
    assert sorted(ordered(5)) == sorted(IDS)
    assert len({tuple(ordered(seed)) for seed in range(1, 20)}) == 19


def test_modules_and_folders_stay_together():
    for depth in (2, 3):
        parts = ["/".join(nodeid.partition("::")[0].split("/")[:depth]) for nodeid in ordered(9)]
        runs = [part for part, _ in itertools.groupby(parts)]
        assert len(runs) == len(set(runs))
        assert runs != sorted(runs)


def test_the_tests_of_a_module_are_shuffled():
    module = [nodeid for nodeid in ordered(9) if "a/test_x" in nodeid]
    assert module != sorted(module)
