"""The fixtures in a user's test suite, which runs in a separate, strict pytest."""

import contextlib
import importlib
import json
import pkgutil
import re
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness.store import load_run
from tests.support.programs import run_program

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

# The outer pytest or another test may already have imported the plug-in, which causes a warning.
INI = """
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider SEED
filterwarnings =
    error
    ignore:Module already imported so cannot be rewritten
xfail_strict = true
"""
# Signals and timers belong to the outer pytest.
OUTER = ("-p", "no:timeout", "-p", "no:faulthandler")
GROUPS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.xdist_groups import pytest_collection_modifyitems
"""
TOY = '@pytest.mark.harness(target="toy-register", workload="register", time_limit=5)'
PASSING = f"""
import pytest

{TOY}
def test_survives(run_case):
    run_case(nemesis="kill-leader")
"""
STALE = """
def test_finds(run_case):
    run_case(bug="NO-LEASE", nemesis="partition-leader", seed=3, rate=20,
             time_limit=3, interval=1, duration=1)
"""


@pytest.fixture(scope="module")
def imported():
    """Import modules that suites use, because `pytester` unloads modules that are imported later.

    numpy cannot be imported twice, and a reloaded module of the target would not recognize
    exceptions of modules that were loaded before.
    """
    import numpy as np  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    import harness.pytesting
    import harness.run.phases  # noqa: F401
    import targets
    from harness.registry import load_plugin, plugin_names

    for group in ("checkers", "environments", "nemeses", "targets", "workloads"):
        for name in plugin_names(group):
            load_plugin(group, name)
    for module in pkgutil.walk_packages(targets.__path__, "targets."):
        with contextlib.suppress(ModuleNotFoundError):  # the package's extra may not be installed
            importlib.import_module(module.name)


@pytest.fixture
def suite(imported, pytester):
    """Return a function that runs pytest on source code, as a user's suite.

    The suite runs in this process, to save the imports, unless it must be `alone`.
    """

    def go(text, *arguments, seed="--harness-seed=1", alone=False):
        pytester.makeini(INI.replace("SEED", seed))
        pytester.makepyfile(test_user=text)
        if alone:
            return pytester.runpytest_subprocess(*arguments)
        return pytester.runpytest_inprocess(*OUTER, *arguments)

    return go


def text_of(result):
    return "\n".join(result.outlines)


def failure_of(result):
    result.assert_outcomes(failed=1)
    return text_of(result)


def runs_in(folder):
    found = [path.parent for path in Path(folder).glob("*/*/case.json")]
    return sorted(run for run in found if not run.is_symlink())


def history_digest(folder):
    return json.loads((folder / "run.json").read_text())["digest"]


# --- start-up --------------------------------------------------------------------------------


def test_nothing_of_ours_is_imported_before_a_test_asks(suite):
    result = suite(
        """
        import sys

        OURS = {"harness", "targets", "nemesis", "checkers", "workloads", "results", "msgspec",
                "numpy", "pyarrow"}

        def test_nothing_is_there():
            assert "_harness_pytestplugin" in sys.modules
            assert not OURS & {name.split(".")[0] for name in sys.modules}
        """,
        alone=True,
    )
    result.assert_outcomes(passed=1)


def test_the_header_and_the_options(suite):
    result = suite(PASSING, "--harness-seed=7", "--harness-env=sim")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["harness: seed 7, env sim, profile as the tests say", "1 run: 1 valid; seed 7"]
    )


def test_a_drawn_seed_is_shown(suite):
    header = text_of(suite("def test_other():\n    pass\n", seed=""))
    assert re.search(r"harness: seed \d+ \(drawn\), env as the tests say, else sim", header)


def test_options_that_cannot_be(suite):
    result = suite(PASSING, "--harness-seed=-1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--harness-seed is -1" in result.stderr.str()


def test_a_suite_without_runs_has_no_summary(suite):
    assert "harness runs" not in text_of(suite("def test_other():\n    pass\n"))


# --- run_case --------------------------------------------------------------------------------


def test_a_failing_verdict_fails_the_test_and_its_replay_line_replays_it(suite, pytester):
    result = suite(STALE, "--harness-artifacts=kept")
    text = failure_of(result)
    assert "harness: INVALID: a promise was broken" in text
    assert "Traceback" not in text
    (folder,) = runs_in(pytester.path / "kept")
    shown = folder.relative_to(pytester.path)
    assert re.search(rf"^run folder +{shown}$", text, re.MULTILINE)
    assert re.search(r"^seed +3$", text, re.MULTILINE)
    assert f"  invalid    test_user.py::test_finds  seed 3  {shown}" in text
    (line,) = re.findall(r"^replay +(harness run .*)$", text, re.MULTILINE)
    command = [str(Path(sys.executable).parent / "harness"), *shlex.split(line)[1:]]
    words = (*command, "--json", "--quiet", "--reporters", "none")
    replayed = run_program(*words, cwd=pytester.path)
    report = json.loads(replayed.stdout)
    assert (replayed.returncode, report["verdict"]) == (1, "invalid")
    assert report["history_sha256"] == history_digest(folder)


@pytest.mark.parametrize("variable", ["CI", "BUILD_NUMBER", None])
def test_the_short_summary_is_short_on_ci_systems_too(suite, pytester, monkeypatch, variable):
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "true")  # keeps pytest from shortening its summary
    monkeypatch.setenv("COLUMNS", "200")
    text = text_of(suite(STALE, "--junitxml=junit.xml"))
    summary = text.partition("short test summary info")[2].splitlines()[1:-1]
    assert summary == [
        "FAILED test_user.py::test_finds - Failed: harness: INVALID: a promise was broken"
    ]
    (failure,) = ET.parse(pytester.path / "junit.xml").getroot().iter("failure")
    assert failure.get("message") == "Failed: harness: INVALID: a promise was broken"
    for whole in (text, failure.text):  # both have the explanation once
        assert len(re.findall("^replay +harness run", whole, re.MULTILINE)) == 1


def test_the_line_that_repeats_a_test_repeats_it(suite, pytester):
    bug = STALE.replace("seed=3, ", "")
    first = suite(bug, "--harness-artifacts=one", "--harness-seed=3")
    (line,) = re.findall(r"^test again +(pytest .*)$", text_of(first), re.MULTILINE)
    again = pytester.run(sys.executable, "-m", *shlex.split(line), "--harness-artifacts=two", "-q")
    again.assert_outcomes(failed=1)
    (one,), (two,) = runs_in(pytester.path / "one"), runs_in(pytester.path / "two")
    assert history_digest(one) == history_digest(two)


def test_expected_verdicts(suite):
    finding = STALE.replace("seed=3", 'seed=3, expect="invalid"')
    blamed = """
        def test_blames_the_innocent(run_case):
            run_case(target="toy-register", workload="register", time_limit=5, expect="invalid")
        """
    result = suite(finding + "\n" + "\n".join(line[8:] for line in blamed.splitlines()))
    result.assert_outcomes(passed=1, failed=1)
    text = text_of(result)
    assert "harness: the verdict is valid, expected invalid" in text
    listed = re.findall(r"^  (?:in)?valid +(test_user.py::\S+)  seed", text, re.MULTILINE)
    assert listed == ["test_user.py::test_blames_the_innocent"]


def test_allowing_unknown_allows_nothing_worse(suite):
    result = suite(STALE.replace("seed=3", "seed=3, allow_unknown=True"))
    assert "harness: INVALID: a promise was broken" in failure_of(result)


VACUOUS = f"""
import pytest

{TOY}
def test_nothing_was_proven(run_case):
    run_case(nemesis="partition-halves"ALLOW)
"""


def test_unknown_fails_unless_it_is_allowed(suite):
    # A single node cannot be partitioned, so the nemesis hits nothing and the run proves too
    # little.
    result = suite(VACUOUS.replace("ALLOW", ""))
    assert "harness: UNKNOWN: nothing was proven" in failure_of(result)
    assert "certificate (what this run really did)" in text_of(result)
    suite(VACUOUS.replace("ALLOW", ", allow_unknown=True")).assert_outcomes(passed=1)


def test_only_named_checkers_judge(suite):
    text = VACUOUS.replace("ALLOW", ', checkers=["linearizable-register", "crash"]')
    suite(text).assert_outcomes(passed=1)


REFUSED = [
    ('run_case(nemesis="earthquake")', "no nemesis 'earthquake'"),
    ("run_case(time_limt=3)", "'time_limt'"),
    ("run_case(time_limt=3)", "did you mean 'time_limit'?"),
    ('run_case(time_limit="long")', "Expected `float`, got `str` - at `time_limit`"),
    ('run_case(nemesis="none,kill-leader")', "'none,kill-leader'"),
    ('run_case(env="moon")', "one of: auto"),
    ('run_case(env="process", nemesis="shape leader from members loss=5%")', "--env sim"),
    ('run_case(expect="good")', "it must be one of valid, permitted, unknown, invalid"),
    ('run_case(checkers="none-such")', "no checker 'none-such'"),
    ('run_case(case="nowhere.json")', "cannot read the case file 'nowhere.json'"),
    ('run_case(case="x.json", rate=3)', "drop rate, or edit the case"),
    ("run_case(masters='three')", "it takes a number"),
    ("history.ops", "nothing ran in this test yet"),
    ("history.check()", "names no checker; name some of:"),
    ('nemesis("kill-leader")', "inside the coroutine"),
    ('cluster(target="nothing")', "no target 'nothing'"),
    ("asyncio.run(in_a_loop(run_case))", "call it from a plain `def test_...`"),
]
IN_A_LOOP = """
import asyncio

async def in_a_loop(run_case):
    run_case()

"""


def test_invalid_requests_fail_before_the_start(suite, pytester):
    bodies = [
        f"def test_{number:02}(run_case, cluster, nemesis, history):\n    {call}\n"
        for number, (call, _) in enumerate(REFUSED)
    ]
    result = suite(IN_A_LOOP + "\n".join(bodies))
    result.assert_outcomes(failed=len(REFUSED))
    sections = re.split(r"^_+ test_\d\d _+$", text_of(result), flags=re.MULTILINE)[1:]
    assert len(sections) == len(REFUSED)
    for section, (call, words) in zip(sections, REFUSED, strict=True):
        assert words in section, call
    assert runs_in(pytester.path / "store") == []


def test_a_case_file_is_run_as_it_is(suite, pytester):
    fault = {"id": "one", "nemesis": "kill-leader", "at_ns": 10**9, "duration_ns": 10**9}
    case = {
        "seed": 5, "target": "toy-register", "workload": "register", "time_limit_s": 4.0,
        "faults": [fault],
    }  # fmt: skip
    (pytester.path / "case.json").write_text(json.dumps(case))
    suite(
        """
        def test_it(run_case):
            run = run_case(case="case.json")
            struck = [op for op in run.history.of_process("nemesis")]
            assert [op.value["fault"] for op in struck] == ["one", "one"]
            assert (run.case.seed, run.environment, run.verdict.value) == (5, "sim", "valid")
        """
    ).assert_outcomes(passed=1)


# --- precedence of options -------------------------------------------------------------------


def test_keywords_win_over_options_over_the_nearest_marker(suite):
    text = """
        import pytest

        pytestmark = pytest.mark.harness(
            target="toy-register", workload="register", time_limit=2, rate=10, seed=50,
            profile="strict",
        )

        @pytest.mark.harness(rate=20)
        def test_it(run_case):
            first, second = run_case(), run_case()
            third = run_case(seed=9, rate=30)
            fourth = run_case()
            seeds = [run.case.seed for run in (first, second, third, fourth)]
            rates = [run.case.rate for run in (first, third)]
            print("seeds", seeds, "rates", rates)
        """
    assert "seeds [50, 51, 9, 52] rates [20.0, 30.0]" in text_of(suite(text, "-s", seed=""))
    assert "seeds [7, 8, 9, 9] rates [20.0, 30.0]" in text_of(suite(text, "-s", "--harness-seed=7"))
    wrong = suite(text, "--harness-profile=none-such")
    assert "has no profile 'none-such'" in text_of(wrong)


def test_the_environment_that_a_test_names_is_the_one(suite):
    text = """
        import pytest

        @pytest.mark.harness(target="toy-register", workload="register", time_limit=2, env="sim")
        def test_it(run_case):
            run_case(ENV)
        """
    suite(text.replace("ENV", 'env="sim"'), "--harness-env=moon").assert_outcomes(passed=1)
    asked = suite(text.replace("ENV", ""), "--harness-env=moon")
    assert "--env is 'moon'; one of: auto, docker, process, sim" in text_of(asked)


def test_a_marker_takes_names_only(suite):
    result = suite(
        """
        import pytest

        @pytest.mark.harness("kudu")
        def test_it(run_case):
            run_case()
        """
    )
    assert "the marker harness takes keyword arguments only, not 'kudu'" in failure_of(result)


# --- folders that remain ---------------------------------------------------------------------


def test_runs_of_passing_tests_go_and_those_of_failing_tests_stay(suite, pytester):
    suite(PASSING).assert_outcomes(passed=1)
    assert not (pytester.path / "store").exists()
    suite(f"{PASSING}    assert False\n").assert_outcomes(failed=1)
    (folder,) = runs_in(pytester.path / "store")
    assert json.loads((folder / "run.json").read_text())["verdict"] == "valid"
    assert (folder.parent / "latest").resolve() == folder


def test_artefacts_that_were_asked_for_stay(suite, pytester):
    result = suite(PASSING, "--harness-artifacts=kept", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    (folder,) = runs_in(pytester.path / "kept")
    assert folder.parent.name == "test_user.test_survives"
    xml = (pytester.path / "junit.xml").read_text()
    assert f'name="harness_run" value="{folder.relative_to(pytester.path)}"' in xml
    assert 'name="harness_verdict" value="valid"' in xml


def test_workers_share_the_seed_and_no_folder(suite, pytester):
    text = PASSING.replace(TOY, '@pytest.mark.parametrize("n", range(4))\n' + TOY)
    text = text.replace("(run_case)", "(run_case, n)")
    # At this rate some operations overlap with every seed; otherwise nothing would be proven.
    text = text.replace('nemesis="kill-leader"', 'nemesis="none", rate=200')
    result = suite(text, "-n2", "--harness-artifacts=kept", seed="", alone=True)
    result.assert_outcomes(passed=4)
    folders = runs_in(pytester.path / "kept")
    assert len(folders) == 4
    assert {folder.parent.name.rsplit("-", 1)[1] for folder in folders} <= {"gw0", "gw1"}
    seeds = {json.loads((folder / "case.json").read_text())["seed"] for folder in folders}
    assert len(seeds) == 1
    assert f"4 runs: 4 valid; seed {seeds.pop()}" in text_of(result)


def test_ctrl_c_ends_the_run_and_keeps_its_history(pytester):
    pytester.makeini(INI.replace("SEED", "--harness-seed=1"))
    pytester.makepyfile(
        test_user=PASSING.replace("time_limit=5", "time_limit=1e6"),
    )
    command = [sys.executable, "-m", "pytest", "-q"]
    running = pytester.popen(command, stdin=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 60
    while not any(log.stat().st_size > 100_000 for log in pytester.path.glob("store/*/2*/ops.log")):
        assert time.monotonic() < deadline_s
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, out
    (folder,) = runs_in(pytester.path / "store")
    record = json.loads((folder / "run.json").read_text())
    assert (record["interrupted"], record["ops"] > 100) == (True, True)
    assert len(json.loads((folder / "results.json").read_text())["checkers"]) == 4


def test_the_line_that_repeats_a_test_is_right_under_loadgroup(suite, pytester):
    pytester.makeconftest(GROUPS)
    grouped = STALE.replace(
        "def test_finds", 'import pytest\n\n@pytest.mark.xdist_group("g")\ndef test_finds'
    )
    result = suite(grouped, "-n1", "--dist=loadgroup", alone=True)
    result.assert_outcomes(failed=1)
    line = r"^test again +pytest test_user.py::test_finds --harness-seed=1$"
    assert re.search(line, text_of(result), re.MULTILINE)
    assert "FAILED test_user.py::test_finds@g" in text_of(result)


# --- long tests ------------------------------------------------------------------------------

SOAK = """
import pytest

@pytest.mark.harness_soak
def test_long():
    pass

def test_short():
    pass
"""


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ([], {"passed": 1, "deselected": 1}),
        (["--harness-soak"], {"passed": 2}),
        (["-m", "harness_soak"], {"passed": 1, "deselected": 1}),
        (["-m", "not harness_soak"], {"passed": 1, "deselected": 1}),
    ],
)
def test_long_tests_are_left_out_unless_they_are_asked_for(suite, arguments, outcome):
    suite(SOAK, *arguments).assert_outcomes(**outcome)


# --- faults injected by hand -----------------------------------------------------------------

BY_HAND = """
import asyncio
import pytest
from harness.nodes.faults import Kill, Pause

pytestmark = pytest.mark.harness(target="toy-register", workload="register")

async def write_until_ok(live, value):
    while True:
        done = await live.invoke("write", {"value": value})
        if done.type.value == "ok":
            return done
        await asyncio.sleep(0.1)
"""


@pytest.fixture
def by_hand(suite):
    def go(body, *arguments):
        return suite(BY_HAND + body, *arguments)

    return go


@pytest.mark.parametrize(
    "environment",
    [
        "sim",
        pytest.param("process", marks=[pytest.mark.process, pytest.mark.xdist_group("process")]),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")]),
    ],
)
def test_a_cluster_a_nemesis_and_a_checker(by_hand, pytester, environment):
    result = by_hand(
        """
def test_it(cluster, nemesis, history):
    async def body(live):
        await write_until_ok(live, -1)
        async with live.traffic(), nemesis("kill-leader") as strike:
            async with asyncio.timeout(120):
                while len(live.recorder.history().pairs) < 20:
                    await asyncio.sleep(0.2)
        await live.wait_ready()
        done = await write_until_ok(live, -2)
        # A busy machine leaves the traffic no time to read.
        while (await live.invoke("read")).type.value != "ok":
            await asyncio.sleep(0.1)
        return strike, done

    strike, done = cluster().run(body)
    assert (strike.targets, strike.bite.count, done.node) == (("r1",), 1, "r1")
    run = history.check("linearizable-register", "crash")
    assert run.history is history.ops
    kinds = [op.value["action"] for op in history.ops.of_process("nemesis")]
    assert kinds == ["inject", "heal"]
    assert len([pair for pair in history.ops.pairs if pair.invoke.process < 10]) > 10
""",
        f"--harness-env={environment}",
        "--harness-artifacts=kept",
    )
    result.assert_outcomes(passed=1)
    (folder,) = runs_in(pytester.path / "kept")
    record = json.loads((folder / "run.json").read_text())
    assert (record["environment"], record["verdict"]) == (environment, "valid")
    assert "does not replay it" in record["warnings"][0]


@pytest.mark.process
@pytest.mark.faketime
@pytest.mark.xdist_group("process")
def test_a_clock_of_a_foreign_program_is_changed_where_that_was_said_before(by_hand):
    body = """
CLOCK = "clock node:r2 offset=-5s"

def test_it(cluster, nemesis):
    async def body(live):
        async with nemesis(CLOCK) as strike:
            await live.wait_ready()  # it asks for the time
        return strike

    strike = cluster(target="http-register"SAID).run(body)
    assert (strike.targets, strike.bite.unit) == (("r2",), "ms")
"""
    by_hand(body.replace("SAID", ", nemesis=CLOCK"), "--harness-env=process").assert_outcomes(
        passed=1
    )
    result = by_hand(body.replace("SAID", ""), "--harness-env=process")
    assert "may change the clock of r2" in failure_of(result)


FORGETS = """
def test_it(cluster, history):
    async def body(live):
        await write_until_ok(live, 1)
        await live.cluster.inject(Kill(), ["r1"], lease_s=30)
        await live.cluster.wipe("r1")
        await live.cluster.start("r1")
        await live.wait_ready()
        await live.invoke("read", process=1)

    cluster(seed=3).run(body)
"""
"""A suite in which a killed and wiped node forgets acknowledged writes."""


def test_a_history_that_is_judged_invalid_fails_the_test(by_hand):
    text = failure_of(by_hand(FORGETS + '    history.check("linearizable-register")'))
    assert "linearizable-register: invalid" in text
    line = r"^replay +pytest test_user.py::test_it --harness-seed=\d+$"
    assert re.search(line, text, re.MULTILINE)


def test_a_later_judgement_takes_no_verdict_back(by_hand, pytester):
    checks = """
    history.check("linearizable-register", expect="invalid")
    assert history.check("crash").verdict.value == "valid"
"""
    result = by_hand(FORGETS + checks, "--harness-artifacts=kept")
    result.assert_outcomes(passed=1)
    assert "1 run: 1 invalid" in text_of(result)
    (folder,) = runs_in(pytester.path / "kept")
    record = json.loads((folder / "run.json").read_text())
    assert record["verdict"] == "invalid"
    assert record["simulated_s"] >= load_run(folder).history[-1].time / 1e9
    results = json.loads((folder / "results.json").read_text())
    assert results["verdict"] == "invalid"
    found = {item["checker"]: item["verdict"] for item in results["checkers"]}
    assert found == {"linearizable-register": "invalid", "crash": "valid"}


def test_the_history_of_an_older_run_is_not_that_of_one_that_failed_to_start(by_hand):
    result = by_hand(
        """
import harness.run.keep as keeping

def test_it(run_case, history, monkeypatch):
    run_case(time_limit=1)
    monkeypatch.setattr(keeping, "conduct", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_case(time_limit=1)
    history.check("linearizable-register")
"""
    )
    assert "nothing ran in this test yet, or the last run did not start" in failure_of(result)


@pytest.mark.parametrize(
    ("does", "afterwards", "words"),
    [
        ("pass", "history.check('linearizable-register')", "no operation was recorded"),
        ("pass", "run_case(checkers=[])", "checkers is []; name at least one"),
        (
            "await asyncio.gather(live.invoke('read'), live.invoke('read'))",
            "",
            "process 0 does 'read' while its last operation is still open",
        ),
        ("async with nemesis('kill leader when event leader'): pass", "", "leave out 'when event"),
        ("async with nemesis('cut client:1 from leader'): pass", "", "hits single clients"),
    ],
)
def test_invalid_manual_steps_fail_the_test(by_hand, does, afterwards, words):
    result = by_hand(f"""
def test_it(cluster, run_case, nemesis, history):
    async def body(live):
        {does}

    cluster().run(body)
    {afterwards}
""")
    assert words in failure_of(result)


def test_an_error_in_the_body_propagates_and_its_history_stays(by_hand, pytester):
    result = by_hand(
        """
def test_it(cluster):
    async def body(live):
        await write_until_ok(live, 1)
        assert "this" == "that"

    cluster().run(body)
"""
    )
    assert "assert 'this' == 'that'" in failure_of(result)
    (folder,) = runs_in(pytester.path / "store")
    assert (folder / "history.parquet").exists()
    assert "1 run: 1 not judged" in text_of(result)


@pytest.mark.parametrize(
    ("nemesis", "options", "words"),
    [
        ("partition-halves", "", "hit nothing: missed: `cut halves` selects no node"),
        ("partition-random-node", 'target="kudu", workload="ddl"',
         "aimed at .* and hit no frames: let more happen"),
    ],
)  # fmt: skip
def test_a_strike_without_effect_fails_the_test(by_hand, nemesis, options, words):
    body = f"""
def test_it(cluster, nemesis):
    async def body(live):
        async with nemesis("{nemesis}"MAY) as strike:
            pass
        assert strike.bite is None or strike.bite.count == 0

    cluster({options}).run(body)
"""
    assert re.search(words, failure_of(by_hand(body.replace("MAY", ""))))
    by_hand(body.replace("MAY", ", may_miss=True")).assert_outcomes(passed=1)


def test_an_operation_of_unknown_outcome_retires_its_process(by_hand):
    by_hand(
        """
def test_it(cluster, history):
    async def body(live):
        await write_until_ok(live, 1)
        pause = await live.cluster.inject(Pause(), ["r1"], lease_s=30)
        lost = await live.invoke("write", {"value": 2}, timeout_s=0.5)
        await live.cluster.heal(pause)
        await write_until_ok(live, 3)
        await live.invoke("read")  # writes alone could contradict nothing
        return lost

    lost = cluster().run(body)
    assert lost.type.value == "info"
    processes = [op.process for op in history.ops if op.is_client]
    assert len(set(processes)) >= 2  # the history itself refuses a process that comes back
    history.check("linearizable-register")
"""
    ).assert_outcomes(passed=1)


def test_the_simulation_repeats_manual_faults(by_hand, pytester):
    body = """
def test_it(cluster, nemesis):
    async def body(live):
        async with live.traffic(), nemesis("pause-leader"):
            await asyncio.sleep(1)

    cluster().run(body)
"""
    by_hand(body, "--harness-seed=5", "--harness-artifacts=one").assert_outcomes(passed=1)
    by_hand(body, "--harness-seed=5", "--harness-artifacts=two").assert_outcomes(passed=1)
    by_hand(body, "--harness-seed=6", "--harness-artifacts=other").assert_outcomes(passed=1)
    digests = [history_digest(runs_in(pytester.path / name)[0]) for name in ("one", "two", "other")]
    assert digests[0] == digests[1] != digests[2]
