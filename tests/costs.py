"""Measures the CPU cost of each test: `--costs FILE` writes a table of all tests. With
HARNESS_CPU_LIMIT=1, tests that cost too much fail.

The cost is the CPU time of pytest's process and of the children that it has waited for, during the
test and the fixtures of this test alone. Shared fixtures (of a module or wider) do not count,
because the first test to use them depends on the order. Wall time is only shown.

A test without a heavy mark may take one second of CPU on a quiet machine. On busy or slow machines
the same test takes up to twice as long, so the limit is `LIMIT_S`. A test above the limit runs
again, because the first run may include imports and caches; the second run decides. Hypothesis
tests are measured only with the profile `quick`.
"""

import csv
import os
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

# imported as functions, because tests replace them in the module `time`
from time import monotonic, process_time

import pytest
from _pytest.runner import runtestprotocol

from tests.tiers import HEAVY, profile

LIMIT_S = 2.0
OPTION = "costs"
ADVICE = "make it faster, or mark it `slow`"


def pytest_addoption(parser):
    parser.addoption(
        "--costs", metavar="FILE", dest=OPTION,
        help="write every test's CPU and wall seconds and its marks to this CSV file",
    )  # fmt: skip


def pytest_configure(config):
    worker = hasattr(config, "workerinput")
    path = config.workerinput[OPTION] if worker else getattr(config.option, OPTION)
    limited = os.environ.get("HARNESS_CPU_LIMIT") == "1"
    if path or limited:
        config.pluginmanager.register(Meter(limited=limited), "cpu-meter")
    if path and not worker:
        names = {line.partition(":")[0].partition("(")[0] for line in config.getini("markers")}
        config.pluginmanager.register(Table(Path(path), names), "costs-table")


@pytest.hookimpl(optionalhook=True)  # a hook of pytest-xdist
def pytest_configure_node(node):
    """Pass the option to a worker; xdist does not pass options that a conftest adds."""
    node.workerinput[OPTION] = getattr(node.config.option, OPTION)


def cpu_s():
    """Return the CPU seconds of this process and of its ended children."""
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


class Meter:
    def __init__(self, *, limited):
        self.limited = limited
        self.cpu_s = self.began_s = self.shared_s = self.began_wall_s = 0.0
        self.in_shared = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        exempt = any(mark.name in HEAVY for mark in item.iter_markers()) or (
            profile() == "ci" and getattr(item.obj, "is_hypothesis_test", False)
        )
        if exempt or not self.limited:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self.run(item, nextitem)
        if self.cpu_s > LIMIT_S and all(report.passed for report in reports):
            item._initrequest()
            reports = self.run(item, nextitem)
            self.judge(reports)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @staticmethod
    def run(item, nextitem):
        return runtestprotocol(item, log=False, nextitem=nextitem)

    def judge(self, reports):
        for report in reports:
            if report.when == "call" and report.passed and self.cpu_s > LIMIT_S:
                report.outcome = "failed"
                report.longrepr = (
                    f"a quick test took {self.cpu_s:.2f} s of CPU, twice over the limit of "
                    f"{LIMIT_S:g} s: {ADVICE}"
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self):
        self.cpu_s = self.shared_s = 0.0
        self.began_s, self.began_wall_s = cpu_s(), monotonic()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Exclude the cost of shared fixtures."""
        if fixturedef.scope == "function" or self.in_shared:
            return (yield)
        began_s, self.in_shared = cpu_s(), True
        try:
            return (yield)
        finally:
            self.in_shared = False
            self.shared_s += cpu_s() - began_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        try:
            return (yield)
        finally:
            self.cpu_s = max(0.0, cpu_s() - self.began_s - self.shared_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        """Attach the cost to the report of the test itself."""
        report = yield
        if call.when == "call":
            wall_s = monotonic() - self.began_wall_s
            report.user_properties += [
                ("cpu_s", round(self.cpu_s, 3)),
                ("wall_s", round(wall_s, 3)),
            ]
        return report


class Table:
    def __init__(self, path, marks):
        self.path, self.marks, self.rows = path, marks, []

    def pytest_runtest_logreport(self, report):
        costs = dict(report.user_properties)
        if report.when == "call" and "cpu_s" in costs:
            marks = " ".join(sorted(self.marks & report.keywords.keys()))
            self.rows.append((report.nodeid, costs["wall_s"], costs["cpu_s"], marks))

    def pytest_sessionfinish(self):
        self.rows.sort(key=lambda row: -row[2])
        with self.path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("test", "wall_s", "cpu_s", "marks"), *self.rows])
