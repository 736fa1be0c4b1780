"""The pytest plug-in. pytest loads this module at its start, so it imports almost nothing.

The module is outside of the package `harness`. Otherwise pytest would import the package in every
test suite on the machine, even if no test needs it (compare hypothesis, issue 3140). Fixtures
import the harness when the first test requests one. The fixtures are in `harness.pytesting`, and
`docs/pytest.md` describes them. They pass data to pytest in `user_properties`, because these reach
the controller of pytest-xdist and JUnit files without further work.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from harness.pytesting import ClusterFactory, HistoryOfTest, NemesisFactory, RunCase, RunsOfTest

MARKERS: Final = (
    "harness(system=, nemesis=, env=, ...): defaults of a test's runs; flags of `harness run`",
    "harness_soak: a long test, left out unless --harness-soak is given or -m names the marker",
)
FAILING_LINES_MAX: Final = 20
PROPERTY: Final = "harness_run"
"""The first property in the record of a run; the properties after it belong to the same run."""
OWN_PACKAGES: Final = {"harness", "targets", "nemesis", "workloads", "checkers", "results"}

_seed = pytest.StashKey[int]()
_seed_drawn = pytest.StashKey[bool]()
_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our own group of options."""
    group = parser.getgroup("harness", "chaos tests of replicated systems (catalog-harness)")
    group.addoption(
        "--harness-seed",
        type=int,
        metavar="N",
        help="seed of a test's first run, N+1 of its second, ... (default: drawn and shown)",
    )
    group.addoption(
        "--harness-env", metavar="ENV", help="sim, process, docker or auto (default: sim)"
    )
    group.addoption("--harness-profile", metavar="NAME", help="the target's profile")
    group.addoption(
        "--harness-artifacts",
        metavar="DIR",
        help="keep all runs in DIR (default: only those of failing tests, in ROOTDIR/store)",
    )
    group.addoption(
        "--harness-soak", action="store_true", help="also run tests marked harness_soak"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and draw a seed for the session if the user gave none."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    given = config.getoption("--harness-seed")
    if given is not None and not 0 <= given < 2**63:
        raise pytest.UsageError(f"--harness-seed is {given}; it must be in 0 .. 2**63-1")
    of_controller = getattr(config, "workerinput", {}).get("harness_seed")
    drawn = int.from_bytes(os.urandom(4), "big") if of_controller is None else int(of_controller)
    config.stash[_seed] = drawn if given is None else given
    config.stash[_seed_drawn] = given is None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give every worker of pytest-xdist the same seed."""
    node.workerinput["harness_seed"] = node.config.stash[_seed]


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line: the seed, environment and profile of this session's runs."""
    seed = f"{config.stash[_seed]}{' (drawn)' if config.stash[_seed_drawn] else ''}"
    env = config.getoption("--harness-env") or "as the tests say, else sim"
    profile = config.getoption("--harness-profile") or "as the tests say"
    return f"harness: seed {seed}, env {env}, profile {profile}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests, unless the user asks for them."""
    if config.getoption("--harness-soak") or "harness_soak" in (config.getoption("-m") or ""):
        return
    long = [item for item in items if item.get_closest_marker("harness_soak") is not None]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item.get_closest_marker("harness_soak") is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add the folders of its runs to the report of a failed test, and shorten its summary."""
    if not item.config.getoption("fulltrace"):
        _show_mistake_where_it_is(call)
    report: pytest.TestReport = yield
    if report.failed:
        item.stash[_failed] = True
        _shorten_summary(report)
        folders = [str(value) for name, value in item.user_properties if name == PROPERTY]
        if folders and report.when == "call":
            report.sections.append(("harness runs", "\n".join(folders)))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the number of runs by verdict, and the runs of failed tests, whose folders are kept."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    runs = [
        (report.nodeid, run)
        for report in reports
        if getattr(report, "when", None) == "teardown"  # only it lists all runs of a test
        for run in _runs_of(report.user_properties)
    ]
    if not runs:
        return
    terminalreporter.section("harness runs")
    counts = Counter(run["harness_verdict"] for _, run in runs)
    text = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    runs_in_words = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    terminalreporter.write_line(f"{runs_in_words}: {text}; seed {config.stash[_seed]}")
    failed = {report.nodeid for report in reports if getattr(report, "failed", False)}
    failing = [(nodeid, run) for nodeid, run in runs if nodeid in failed]
    for nodeid, run in failing[:FAILING_LINES_MAX]:
        terminalreporter.write_line(
            f"  {run['harness_verdict']:10} {nodeid}  seed {run['harness_seed']}  {run[PROPERTY]}"
        )
    if len(failing) > FAILING_LINES_MAX:
        terminalreporter.write_line(f"  ... and {len(failing) - FAILING_LINES_MAX} more")


def _show_mistake_where_it_is(call: pytest.CallInfo[None]) -> None:
    """For a `UsageError`, show the wrong line of the test, not our code that raised it."""
    errors = sys.modules.get("harness.errors")
    if call.excinfo is None or errors is None:
        return
    if not isinstance(call.excinfo.value, errors.UsageError):
        return
    error = call.excinfo.value
    entry, kept = error.__traceback__, None
    while entry is not None:
        if not _is_own(entry.tb_frame.f_globals.get("__name__")):
            if kept is not None:
                kept.tb_next = entry
            kept = entry
        entry = entry.tb_next
    if kept is not None:
        kept.tb_next = None
        error.__cause__ = error.__context__ = None


def _is_own(module: object) -> bool:
    return str(module).partition(".")[0] in OWN_PACKAGES


def _shorten_summary(report: pytest.TestReport) -> None:
    """Keep only the first line of a verdict in the message that summaries repeat.

    On a CI system (where CI or BUILD_NUMBER is set), pytest prints this message untrimmed in its
    short summary, and JUnit files have it as an attribute. The full text of the failure stays.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and crash.message.startswith("Failed: harness: "):
        crash.message = crash.message.partition("\n")[0]


def _as_given(item: pytest.Item) -> str:
    """Return the node id of a test, relative to the folder in which pytest was started."""
    path, separator, rest = item.nodeid.partition("::")
    marks = item.iter_markers("xdist_group")  # pytest-xdist adds the group to the test's name
    groups = {str((*mark.args, mark.kwargs.get("name", "default"))[0]) for mark in marks}
    rest = rest.removesuffix(f"@{'_'.join(sorted(groups))}")
    start = item.config.invocation_params.dir
    return os.path.relpath(item.config.rootpath / path, start) + separator + rest


def _runs_of(properties: list[tuple[str, object]]) -> list[dict[str, str]]:
    """Return the runs that a test recorded in its properties, in order."""
    runs: list[dict[str, str]] = []
    for name, value in properties:
        if name == PROPERTY:
            runs.append({})
        if runs and name.startswith("harness_"):
            runs[-1][name] = str(value)
    return [run for run in runs if {"harness_seed", "harness_verdict"} <= set(run)]


# --- fixtures --------------------------------------------------------------------------------


@pytest.fixture
def _harness_runs(request: pytest.FixtureRequest) -> Iterator[RunsOfTest]:
    """The state that all fixtures of one test share. At the end, runs that passed are removed."""
    from harness.pytesting import RunsOfTest, Settings

    config = request.config
    artifacts = config.getoption("--harness-artifacts")
    item = request.node
    marks = list(item.iter_markers("harness"))
    runs = RunsOfTest(
        Settings(
            test=_as_given(item),
            name=f"{item.path.stem}.{item.name}",
            seed=config.stash[_seed],
            env=config.getoption("--harness-env"),
            seed_given=not config.stash[_seed_drawn],
            profile=config.getoption("--harness-profile"),
            store=str(config.invocation_params.dir / artifacts)
            if artifacts
            else str(config.rootpath / "store"),
            keep_all=artifacts is not None,
            worker=getattr(config, "workerinput", {}).get("workerid"),
            start_folder=str(config.invocation_params.dir),
            root=str(config.rootpath),
        ),
        [(mark.args, dict(mark.kwargs)) for mark in marks],
        item.user_properties,
    )
    yield runs
    runs.tidy(failed=item.stash.get(_failed, False))


@pytest.fixture
def run_case(_harness_runs: RunsOfTest) -> RunCase:
    """Run one case, from deployment to verdict, and fail the test unless it is valid."""
    from harness.pytesting import RunCase

    return RunCase(_harness_runs)


@pytest.fixture
def cluster(_harness_runs: RunsOfTest) -> ClusterFactory:
    """Deploy a target, and run the test's own coroutine on it."""
    from harness.pytesting import ClusterFactory

    return ClusterFactory(_harness_runs)


@pytest.fixture
def nemesis(_harness_runs: RunsOfTest) -> NemesisFactory:
    """Inject a fault into the cluster of this test until the end of a block."""
    from harness.pytesting import NemesisFactory

    return NemesisFactory(_harness_runs)


@pytest.fixture
def history(_harness_runs: RunsOfTest) -> HistoryOfTest:
    """The history of this test's last run; `check` judges it by any checkers."""
    from harness.pytesting import HistoryOfTest

    return HistoryOfTest(_harness_runs)
