"""A random order of tests, so that no test depends on earlier tests.

Folders, modules and the tests in them are shuffled but stay together, so that shared fixtures start
only once. The end of a run prints the seed; `--order-seed N` repeats the order, and `--order-seed
0` keeps the order in the files.
"""

import hashlib
import random

import pytest

OPTION = "order_seed"


def pytest_addoption(parser):
    parser.addoption(
        "--order-seed", type=int, metavar="N", dest=OPTION,
        help="seed of the order of tests (default: drawn and shown; 0: as they are written)",
    )  # fmt: skip


def pytest_configure(config):
    told = getattr(config, "workerinput", {}).get(OPTION)
    if told is not None:
        setattr(config.option, OPTION, told)
    elif getattr(config.option, OPTION) is None:
        setattr(config.option, OPTION, random.SystemRandom().randrange(1, 1_000_000))


@pytest.hookimpl(optionalhook=True)  # a hook of pytest-xdist
def pytest_configure_node(node):
    """Pass the seed to a worker; xdist does not pass options that a conftest adds."""
    node.workerinput[OPTION] = getattr(node.config.option, OPTION)


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"order of tests: --order-seed={getattr(config.option, OPTION)}")


def pytest_collection_modifyitems(config, items):
    seed = getattr(config.option, OPTION)
    if seed:
        shuffle(items, seed)


def shuffle(items, seed):
    """Shuffle tests by their `nodeid`s and the seed only, so that all workers agree."""

    def place(*words):
        return hashlib.sha256(f"{seed} {' '.join(words)}".encode()).digest()

    def key(item):
        path, _, test = item.nodeid.partition("::")
        folder = path.rpartition("/")[0]
        return place(folder), folder, place(path), path, place(path, test)

    items.sort(key=key)
