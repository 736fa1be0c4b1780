"""A mistake in a user's test is shown at its line, in one sentence, without harness code."""

import re

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

INI = """
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider --harness-seed=1
filterwarnings = error
"""
TOY = '@pytest.mark.harness(target="toy-register", workload="register", time_limit=5)'
MISTAKES = [
    ("run_case(nemesiss='none')", "did you mean 'nemesis'?"),
    ("run_case(nemesis='kill-leadr')", "no nemesis 'kill-leadr'"),
    ("run_case(rate=-1)", "rate is -1"),
    ("run_case(case='nope.json')", "'nope.json'"),
    ("nemesis('kill-leader')", "cluster(...).run"),
]


@pytest.fixture
def user_says(pytester):
    """Return a function that runs a test with this body, and returns pytest's output and its
    report.
    """

    def go(body, *arguments):
        pytester.makeini(INI)
        pytester.makepyfile(
            test_user=f"import pytest\n\n{TOY}\ndef test_it(run_case, cluster, nemesis):\n{body}\n"
        )
        return pytester.runpytest_subprocess(*arguments)

    return go


def test_mistakes_are_shown_at_the_lines_that_make_them(pytester):
    pytester.makeini(INI)
    heads = [
        f"{TOY}\ndef test_{number}(run_case, cluster, nemesis):" for number in range(len(MISTAKES))
    ]
    tests = [f"{head}\n    {line}\n" for head, (line, _) in zip(heads, MISTAKES, strict=True)]
    pytester.makepyfile(test_user="\n".join(["import pytest\n", *tests]))
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=len(MISTAKES))
    _, *shown = re.split(r"^_+ test_\d _+$", result.stdout.str(), flags=re.MULTILINE)
    for number, ((line, words), text) in enumerate(zip(MISTAKES, shown, strict=True)):
        assert words in text
        assert f">       {line}" in text
        assert f"test_user.py:{5 + 4 * number}: UsageError" in text
        for ours in ("def load_plugin", "def case_from", "planning.py", "markers.py", "During"):
            assert ours not in text


def test_a_mistake_inside_a_coroutine_is_shown_in_it(user_says):
    result = user_says(
        "    async def body(live):\n"
        "        async with nemesis('kill-leadr'):\n"
        "            pass\n"
        "    cluster().run(body)"
    )
    text = result.stdout.str()
    assert ">       async with nemesis('kill-leadr'):" in text
    assert "test_user.py:6: UsageError" in text
    assert "def load_plugin" not in text
    assert "environment.py" not in text


def test_the_full_output_is_available_on_request(user_says):
    result = user_says("    run_case(nemesis='kill-leadr')", "--full-trace")
    assert "def load_plugin" in result.stdout.str()


def test_errors_outside_the_test_keep_their_traceback(user_says):
    result = user_says("    run_case.__call__.__func__()")
    assert "TypeError" in result.stdout.str()
    result = user_says(
        "    from harness.errors import TargetError\n"
        "    from harness import registry\n"
        "    def broken(*_):\n"
        "        raise TargetError('it broke')\n"
        "    registry.load_plugin = broken\n"
        "    import harness.plan.planning\n"
        "    harness.plan.planning.load_plugin = broken\n"
        "    run_case(nemesis='none')"
    )
    text = result.stdout.str()
    assert "TargetError: it broke" in text
    assert "planning.py" in text
