"""Tests that choose a declared system by `system="FILE.toml"`, in the marker or in a call."""

import pytest

from harness.case import Case
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.pytesting.markers import case_from_settings
from harness.pytesting.runs import RunsOfTest, Settings
from tests.declared.support import OPERATIONS, declaration, written


@pytest.fixture
def merged(tmp_path):
    """Return a function that merges a marker with the arguments of a call."""

    def go(marker, **call):
        settings = Settings(
            test="t", name="t", seed=1, seed_given=True, env=None, profile=None, worker=None,
            store=str(tmp_path), keep_all=False, start_folder="/", root=str(tmp_path),
        )  # fmt: skip
        env, wanted = RunsOfTest(settings, [((), marker)], []).merged_settings(call)
        return env, case_from_settings(wanted)

    return go


def test_the_file_declares_the_system_and_its_keys_are_defaults(tmp_path, merged):
    top = 'name = "shop"\nrate = 7\nnemeses = ["kill"]\nenv = "process"\ntime-limit = 9'
    written(tmp_path, declaration(top=top))

    env, case = merged({"system": "system.toml", "time_limit": 5})

    assert env == "process"
    assert (case.target, case.system, case.workload) == ("declared", "shop", "register")
    assert (case.rate, case.nemeses, case.time_limit_s) == (7.0, ("kill",), 5.0)
    assert [node.name for node in plan_case(case, None).nodes] == ["n1", "n2", "n3"]


def test_a_call_overrides_the_marker(tmp_path, merged):
    more = OPERATIONS + '[operations.set]\nadd = "PUT /set/{value}"\nread = "GET /set"\n'
    written(tmp_path, declaration(operations=more))
    marker = {"system": "other.toml", "workload": "register"}

    env, case = merged(marker, system="system.toml", workload="set", system_name="mine")

    assert (env, case.workload, case.system) == ("auto", "set", "mine")


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ({"system": "none.toml"}, "cannot be read"),
        ({"system": 5}, "system is 5"),
        ({"system": "system.toml", "target": "kudu"}, "drop one of the two"),
        ({"system": "wrong.toml"}, "wrong.toml, line 1"),
        ({"system": "system.toml", "nodes": 3}, "'nodes'"),
    ],
)
def test_mistakes_are_one_sentence(marker, words, tmp_path, merged):
    written(tmp_path, declaration(), wrong__toml='naem = "x"')

    with pytest.raises(UsageError, match=words):
        merged(marker)


def test_other_targets_need_no_file(merged):
    assert merged({}) == ("sim", Case(seed=1))
